"""From a log to a server: train a run, export it, and answer without torch.

``server.py`` beside this file reads what is exported here. Each part that begins with ``# %%`` is a
cell of a notebook. Install what it needs with ``pip install 'widemax[onnx,faiss]' onnxruntime``;
run it with ``python examples/serving.py``.
"""

# %% A shop with features of users and items: put your own files here.
from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime

import widemax as wm
from server import Server

folder = Path(tempfile.mkdtemp())
shop = wm.data.SimulatedShop.create(num_items=2_000, num_users=1_000, seed=0)
shop.write(folder)

# %% Train two towers; the same as ``widemax train log.parquet --model two-tower ...``.
config = wm.Config(
    model="two-tower",
    item_features=str(folder / "items.parquet"),
    user_features=str(folder / "users.parquet"),
    objective="corrected-log-q",
    steps=150,
)
run = wm.train(folder / "log.parquet", config, folder=folder / "run")

# %% Export: ``widemax export run serving --to serving``.
run.export(folder / "serving", to="serving")
for path in sorted((folder / "serving").iterdir()):
    print(f"{path.stat().st_size:>10,} bytes  {path.name}")

# %% What the encoder takes: texts and numbers by name. Items are ids of ``vocabulary.parquet``.
server = Server(folder / "serving")
for each in server.encoder.get_inputs():
    print(f"{each.name}: {each.type} {each.shape}")

# %% The answers are those of the run, for users with features and for one who is not known.
people = shop.users.head(50)
histories = [[each.key for each in run.history(user)] for user in people["user_id"]]
features = {"user_age": people["age"].cast(float), "user_interest": people["interest"]}
started = time.perf_counter()
answers = server.recommend(histories, features)
seconds = time.perf_counter() - started
same = worst = 0
for user, found in zip(people["user_id"], answers, strict=True):
    expected = run.recommend(user=user)
    same += [key for key, _ in found] == [each.key for each in expected]
    gaps = [abs(score - each.score) for (_, score), each in zip(found, expected, strict=True)]
    worst = max(worst, *gaps)
stranger = server.recommend([histories[0]])[0]
same += [key for key, _ in stranger] == [each.key for each in run.recommend(histories[0])]
print(f"{same} of {len(answers) + 1} lists are those of the run, scores within {worst:.1e}")
print(f"{1000 * seconds / len(answers):.2f} ms a user")

# %% An item that came today gets its vector from its features, and is found from then on.
tower = onnxruntime.InferenceSession(folder / "serving" / "items.onnx")
(vector,) = tower.run(
    ["vector"],
    {
        "item": np.array([-1]),
        "item_title": np.array([["Folding", "Steel", "Trellis"]]),
        "item_category": np.array(["garden"]),
        "item_price": np.array([49.0]),
    },
)
near = server.index.search(vector, 3)[1][0]
print("folding-steel-trellis is like", ", ".join(server.keys[place] for place in near))
server.index.add(vector)
server.keys.append("folding-steel-trellis")

# %% A process of its own, with nothing but the folder.
command = [sys.executable, str(Path(__file__).with_name("server.py")), str(folder / "serving")]
print(subprocess.run([*command, *histories[0]], capture_output=True, text=True, check=True).stdout)
