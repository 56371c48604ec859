"""Azure's public LLM inference traces of 2023 and 2024.

Source: AzurePublicDataset. 2023: `AzureLLMInferenceTrace_{code,conv}.csv` (Patel et al., Splitwise,
ISCA 2024), whose times have 7 fractional digits and no offset from UTC. 2024: `..._1week.csv`
(Stojkovic et al., DynamoLLM, arXiv 2408.00741), whose times end in `+00:00` and have 6 fractional
digits or none, as the data set's own notebook notes. The columns are the same.
"""

from __future__ import annotations

from workloads.formats.clocks import wall_clock
from workloads.formats.table import TableFormat

AZURE = TableFormat(
    name="azure",
    time="TIMESTAMP",
    clock=wall_clock,
    time_like="a time like 2023-11-16 18:15:46.6805900 or 2024-05-10 00:00:00.009930+00:00",
    prompt=("ContextTokens",),
    output=("GeneratedTokens",),
)
