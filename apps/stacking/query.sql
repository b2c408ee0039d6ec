select SpecRa, SpecDec
from QsoConcordanceAll
where bestMode=1
and SpecSciencePrimary=1
and SpecRa<>0
