"""A program of zarr-python: blocks, orthogonal indexing and a hierarchy, as its users write it."""

import sys

import numpy as np
import zarr

path = sys.argv[1]
root = zarr.open_group(path, mode="w")
root.attrs["title"] = "a run"
model = root.create_group("model")
t = model.create_array(
    name="t", shape=(6, 8, 16), chunks=(2, 4, 8), dtype="float32",
    compressors=zarr.codecs.ZstdCodec(level=3), fill_value=-999.0,
    dimension_names=("time", "lat", "lon"), attributes={"units": "K"},
)  # fmt: skip
t.attrs.update({"long_name": "temperature", "valid": [180, 340]})
for step in range(5):
    t[step] = np.full((8, 16), 270.0 + step)
t.oindex[[0, 3], :, [1, 2]] = 300.0
t.blocks[2, 1, 1] = 310.0
lat = root.require_group("grid").create_array("lat", data=np.linspace(-90, 90, 8), chunks=4)
root.ones(name="mask", shape=(8, 16), dtype="i1", chunks=(4, 8))
root.zeros_like(name="weights", data=np.zeros((8, 16)))
s = root.create_array("series", shape=(0, 3), chunks=(4, 3), dtype="i4")
s.append(np.arange(6, dtype="i4").reshape(2, 3))
s.append(np.arange(3, dtype="i4").reshape(1, 3), axis=0)

print(t.shape, t.dtype, t.chunks, t.ndim, t.size, t.nbytes, t.nchunks, t.cdata_shape)
print(t.fill_value, np.asarray(t).shape, t[[0, 4]].shape, t[..., 3].max())
print(sorted(root), sorted(root["model"]), "model/t" in root, sorted(n for n, _ in root.members()))
print(t[0, :2, :3].tolist(), t[-1, 0, 0], t.blocks[2, 1, 1].max())
print(t.oindex[[0, 3], 1, [1]].tolist())
print(t.vindex[[0, 3], [0, 0], [1, 1]].tolist(), s[:].tolist(), root["mask"][:2, :2].tolist())
print(dict(t.attrs), t.attrs.asdict()["valid"], root.attrs["title"], lat[:].sum())
del root["weights"]
print("weights" in root, sorted(root.group_keys()), sorted(root.array_keys()))
