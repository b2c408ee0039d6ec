-- The join file of a site that is a store elsewhere: how it is reached, and the key to it.
ALTER TABLE site ADD COLUMN join_text {text};
