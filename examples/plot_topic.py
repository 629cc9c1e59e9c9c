# %% [markdown]
# # A topic as a plot
# Reads 200 samples of `Square` into a table and plots the positions of the squares. It runs cell by cell in an editor
# that supports `# %%`, or as `python examples/plot_topic.py`; without matplotlib it only prints the table's ranges.

# %%
from __future__ import annotations

import os

import pyarrow.compute as pc

import spark_rtps as rtps

DOMAIN = int(os.environ.get("DOMAIN", "0"))
INTERFACE = os.environ.get("INTERFACE")

# %% Join the domain, and read a table. The type is the one that the writers announce.
with rtps.Participant(DOMAIN, interface=INTERFACE) as participant:
    table = participant.subscribe("Square").read(max_rows=200, timeout=10)
print(table.num_rows, "samples;", table.schema.to_string())

# %% The table is an Arrow table: group it, filter it, or pass it to pandas or Polars without a copy.
print(table.group_by("color").aggregate([("x", "min"), ("x", "max"), ("y", "min"), ("y", "max")]).to_pylist())

# %% Plot it.
try:
    import matplotlib.pyplot as plt
except ImportError:
    print("matplotlib is not installed")
else:
    for color in table["color"].unique().to_pylist():
        of_color = table.filter(pc.equal(table["color"], color))
        plt.plot(of_color["x"], of_color["y"], ".-", label=color, color=color.lower())
    plt.legend()
    plt.savefig("square.png")
