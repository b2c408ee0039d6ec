//! Tests of the room: see below.
