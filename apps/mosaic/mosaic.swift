# The mosaic of plan.py as a Swift script:
#
#     eyas run mosaic.swift
#
# It reads data/raw/*.fits, which make_tiles.py writes, and writes mosaic/. Which tiles overlap, mOverlaps knows only when
# all are reprojected; so a plane is fitted to every pair, and the fit of a pair that does not overlap says `none`.
type file;

app (file table) mImgtbl(file mcheck, int n, string options[], file names, string folder, file tiles[])
{
  sh @mcheck "-n" n "mImgtbl" options "-t" @names folder @table;
}

app (file region) mMakeHdr(file mcheck, int n, file table)
{
  sh @mcheck "-n" n "mMakeHdr" @table @region;
}

app (file image, file area) mProject(file mcheck, file tile, file region)
{
  sh @mcheck "mProject" @tile @image @region;
}

app (file pairs) mOverlaps(file mcheck, file table)
{
  sh @mcheck "mOverlaps" @table @pairs;
}

app (file fit) mDiffFit(file mdifffit, file mcheck, file plus, file plus_area, file minus, file minus_area, file region)
{
  sh @mdifffit @plus @minus @fit @region;
}

app (file table) mConcatFit(file program, file pairs, file fits[])
{
  python3 @program @pairs "fit" @table;
}

app (file corrections) mBgModel(file mcheck, file table, file fits)
{
  sh @mcheck "mBgModel" @table @fits @corrections;
}

# It looks its image up in the table by the name that it is given.
app (file image, file area) mBackground(file mbackground, file mcheck, file projected, file projected_area, file table,
                                        file corrections)
{
  sh @mbackground @projected @image @table @corrections;
}

app (file mosaic, file area) mAdd(file mcheck, file table, file region, file corrected[], file corrected_areas[])
{
  sh @mcheck "mAdd" "-p" "corr" @table @region @mosaic;
}

app (file picture) mViewer(file mcheck, file mosaic)
{
  sh @mcheck "mViewer" "-gray" @mosaic "1%" "99.7%" "gaussian-log" "-out" @picture;
}

file mcheck <"mcheck">;
file mdifffit <"mdifffit">;
file mbackground <"mbackground">;
file mconcatfit <"mconcatfit.py">;
file tiles[] <filesys_mapper; location="data/raw", suffix=".fits">;
int n = length(tiles);

# The order of the tiles; mImgtbl alone would take that of the directory.
string stems[];
string rows[];
rows[0] = sprintf("|%-60s|", "fname");
rows[1] = sprintf("|%-60s|", "char");
foreach tile, i in tiles {
  stems[i] = regexp(@tile, ".*/(.*)\\.fits", "\\1");
  rows[i + 2] = strcat("  ", stems[i], ".fits");
}
file names <"lists/images.lst">;
names = writeData(rows);

file raw_table = mImgtbl(mcheck, n, ["-c"], names, "data/raw", tiles);
file region = mMakeHdr(mcheck, n, raw_table);

file projected[]      <structured_regexp_mapper; source=tiles, match=".*/(.*)\\.fits", transform="proj/\\1.fits">;
file projected_area[] <structured_regexp_mapper; source=tiles, match=".*/(.*)\\.fits", transform="proj/\\1_area.fits">;
file corrected[]      <structured_regexp_mapper; source=tiles, match=".*/(.*)\\.fits", transform="corr/\\1.fits">;
file corrected_area[] <structured_regexp_mapper; source=tiles, match=".*/(.*)\\.fits", transform="corr/\\1_area.fits">;
foreach tile, i in tiles {
  (projected[i], projected_area[i]) = mProject(mcheck, tile, region);
}

file table       <"mosaic/images.tbl">;
file planes      <"mosaic/fits.tbl">;
file corrections <"mosaic/corrections.tbl">;
table = mImgtbl(mcheck, n, [], names, "proj", projected);
file pairs = mOverlaps(mcheck, table);

file fits[];
foreach i in [0:n-2] {
  foreach j in [i+1:n-1] {
    file fit <single_file_mapper; file=strcat("fit/", stems[i], "-", stems[j], ".fit")>;
    fit = mDiffFit(mdifffit, mcheck, projected[i], projected_area[i], projected[j], projected_area[j], region);
    fits[i * n + j] = fit;
  }
}
planes = mConcatFit(mconcatfit, pairs, fits);
corrections = mBgModel(mcheck, table, planes);

foreach tile, i in tiles {
  (corrected[i], corrected_area[i]) =
    mBackground(mbackground, mcheck, projected[i], projected_area[i], table, corrections);
}

file mosaic  <"mosaic/mosaic.fits">;
file area    <"mosaic/mosaic_area.fits">;
file picture <"mosaic/mosaic.png">;
(mosaic, area) = mAdd(mcheck, table, region, corrected, corrected_area);
picture = mViewer(mcheck, mosaic);
