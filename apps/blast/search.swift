# The split search of plan.py as a Swift script:
#
#     eyas run search.swift -- -pieces=6 -residues=$(grep -v '^>' data/proteins.faa | tr -d '\n' | wc -c)
#
# It reads data/, which make_data.py writes, and writes found/. An e-value depends on the size of the whole database, so
# every search is told its residues.
type file;

# Formatted as version 4, a piece of a database is three files.
type database {
  file phr;
  file pin;
  file psq;
}

app (file pieces[]) fastasplit(file proteins, int n)
{
  fastasplit "-f" @proteins "-o" "pieces" "-c" n;
}

app (database piece) makeblastdb(file proteins, string name)
{
  makeblastdb "-in" @proteins "-dbtype" "prot" "-blastdb_version" "4" "-out" name;
}

app (file hits) blastp(database piece, string name, file query, int residues, int targets)
{
  blastp "-db" name "-query" @query "-evalue" "10" "-outfmt" "6 std score" "-dbsize" residues
         "-max_target_seqs" targets "-out" @hits;
}

app (file found) merge(file program, int targets, file hits[])
{
  python3 @program targets @found filenames(hits);
}

int n_pieces = toInt(arg("pieces", "6"));
int targets  = toInt(arg("targets", "500"));
int residues = toInt(arg("residues"));

file program  <"merge.py">;
file proteins <"data/proteins.faa">;
file queries[] <filesys_mapper; location="data/queries", suffix=".faa">;
file found[] <structured_regexp_mapper; source=queries, match=".*/(.*)\\.faa", transform="found/\\1.tsv">;

# fastasplit names the pieces.
string names[];
foreach i in [0:n_pieces-1] {
  names[i] = strcat("pieces/proteins.faa_chunk_", pad(7, i));
}
file pieces[] <array_mapper; files=names>;
pieces = fastasplit(proteins, n_pieces);

# db/000.phr, db/000.pin, ...
database databases[] <simple_mapper; location="db", padding=3, separator=".">;
foreach i in [0:n_pieces-1] {
  databases[i] = makeblastdb(pieces[i], strcat("db/", pad(3, i)));
}

foreach query, q in queries {
  file hits[];
  foreach i in [0:n_pieces-1] {
    hits[i] = blastp(databases[i], strcat("db/", pad(3, i)), query, residues, targets);
  }
  found[q] = merge(program, targets, hits);
}
