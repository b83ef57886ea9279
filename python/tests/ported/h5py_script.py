"""A program of h5py: statistics of a growing series, as h5py's users write them."""

import sys

import h5py
import numpy as np

path = sys.argv[1]
with h5py.File(path, "w") as f:
    f.attrs["title"] = "a run"
    model = f.create_group("model")
    t = model.create_dataset(
        "t", (0, 8, 16), maxshape=(None, 8, 16), chunks=(2, 8, 16), dtype="f4",
        compression="gzip", compression_opts=4, shuffle=True, fillvalue=-999.0,
    )  # fmt: skip
    t.attrs["units"] = "K"
    for step in range(6):
        t.resize(step + 1, axis=0)
        t[step] = np.full((8, 16), 270.0 + step, "f4")
    model["lat"] = np.linspace(-90, 90, 8)
    f.require_group("grid").create_dataset("names", data=["a", "b"], dtype=h5py.string_dtype())
    t[2, 1:3, [0, 5]] = 300.0
    f.flush()

with h5py.File(path, "r") as f:
    t = f["model/t"]
    assert t.shape == (6, 8, 16) and t.dtype == np.float32 and t.chunks == (2, 8, 16)
    assert sorted(f) == ["grid", "model"] and "lat" in f["model"] and "q" not in f
    found = {name: t[box].mean() for name, box in enumerate(t.iter_chunks())}
    print([f"{value:.3f}" for value in found.values()])
    print(list(f["model"]), [row.max() for row in t], t.attrs["units"])
    buffer = np.empty((16,), "f4")
    t.read_direct(buffer, np.s_[2, 1])
    print(buffer.tolist(), t.astype("f8")[5, 0, :2].dtype, len(t), t.maxshape[0])
    walked = []
    f.visititems(lambda name, node: walked.append((name, getattr(node, "shape", None))))
    print(walked, dict(f.attrs), t[t[...] > 290].tolist(), f["model"].get("q"))
