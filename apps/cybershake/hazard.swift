# The seismic hazard workflow of plan.py as a Swift script:
#
#     eyas run hazard.swift -- -variations=5
#
# It reads data/, which make_data.py writes, and writes hazard/.
type file;

app (file sub) ExtractSGT(file program, file x, file y, file rupture)
{
  python3 @program "extract" @x @y @rupture @sub;
}

app (file seismogram) SeismogramSynthesis(file program, file sub, file rupture, int variation)
{
  python3 @program "synthesize" @sub @rupture variation @seismogram;
}

app (file peak) PeakValCalc(file program, file seismogram)
{
  python3 @program "peak" @seismogram @peak;
}

app (file all) ZipSeis(file program, file seismograms[])
{
  python3 @program "zip" @all filenames(seismograms);
}

app (file curve) HazardCurve(file program, file peaks[])
{
  python3 @program "curve" @curve filenames(peaks);
}

int variations = toInt(arg("variations"));

file program <"shake.py">;
file x <"data/sgt_x.bin">;
file y <"data/sgt_y.bin">;
file ruptures[] <filesys_mapper; location="data/ruptures", suffix=".json">;

file seismograms[];
file peaks[];

foreach rupture, r in ruptures {
  file sub = ExtractSGT(program, x, y, rupture);
  foreach v in [0:variations-1] {
    # The archive keeps the names of the seismograms, so they have names of their own.
    file seismogram <single_file_mapper; file=strcat("seis/r", pad(3, r), "-v", pad(3, v), ".seis")>;
    seismogram = SeismogramSynthesis(program, sub, rupture, v);
    seismograms[r * variations + v] = seismogram;
    peaks[r * variations + v] = PeakValCalc(program, seismogram);
  }
}

file all <"hazard/seismograms.zip">;
file curve <"hazard/curve.csv">;
all = ZipSeis(program, seismograms);
curve = HazardCurve(program, peaks);
