"""GGUF version 3, written and strictly read.  Only what the demo models need: F32, F16 and Q8_0 tensors.

Q8_0: blocks of 32 weights, a half-precision scale d = largest magnitude / 127, then 32 signed bytes q; weight = d * q.
"""

import struct

import numpy as np

MAGIC, VERSION, ALIGNMENT = b"GGUF", 3, 32
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9      # metadata value types
TYPE_F32, TYPE_F16, TYPE_Q8_0 = 0, 1, 8                     # tensor types
PLAIN_TYPES = {TYPE_F32: "<f4", TYPE_F16: "<f2"}
PLAIN = {U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}


def quantize(w):
    """float32 [rows, n] -> Q8_0 bytes."""
    assert w.shape[-1] % 32 == 0
    blocks = np.ascontiguousarray(w, np.float32).reshape(-1, 32)
    d = (np.abs(blocks).max(1) / 127).astype(np.float16)
    scale = d.astype(np.float32)
    inverse = np.where(scale > 0, 1 / np.where(scale > 0, scale, 1), 0).astype(np.float32)
    q = np.clip(np.rint(blocks * inverse[:, None]), -127, 127).astype(np.int8)
    out = np.empty(len(blocks), np.dtype([("d", "<f2"), ("q", "i1", 32)]))
    out["d"], out["q"] = d, q
    return out.tobytes()


def dequantize(data, shape):
    blocks = np.frombuffer(data, np.dtype([("d", "<f2"), ("q", "i1", 32)]))
    return (blocks["d"].astype(np.float32)[:, None] * blocks["q"].astype(np.float32)).reshape(shape)


def tensor_size(shape, kind):
    n = int(np.prod(shape))
    return n * 4 if kind == TYPE_F32 else n * 2 if kind == TYPE_F16 else n // 32 * 34


# -------------------------------------------------------------------------------------------------- writing


def _string(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def _value(kind, v):
    if kind == STRING:
        return _string(v)
    if kind == ARRAY:
        item, items = v
        return struct.pack("<IQ", item, len(items)) + b"".join(_value(item, x) for x in items)
    return struct.pack(PLAIN[kind], v)


def write(path, metadata, tensors, matrices=TYPE_Q8_0):
    """metadata: [(key, type, value)], arrays as (item type, items).  tensors: [(name, float32 array)].

    Matrices become Q8_0 (or F16), vectors stay F32.  Dimensions are stored fastest first, so a [rows, n] matrix is (n, rows).
    """
    head = MAGIC + struct.pack("<IQQ", VERSION, len(tensors), len(metadata))
    for key, kind, v in metadata:
        head += _string(key) + struct.pack("<I", kind) + _value(kind, v)
    offset, body = 0, b""
    for name, w in tensors:
        kind = TYPE_F32 if w.ndim == 1 else matrices
        head += _string(name) + struct.pack("<I", w.ndim) + struct.pack(f"<{w.ndim}Q", *reversed(w.shape))
        head += struct.pack("<IQ", kind, offset)
        data = quantize(w) if kind == TYPE_Q8_0 else np.ascontiguousarray(w, PLAIN_TYPES[kind]).tobytes()
        data += b"\0" * (-len(data) % ALIGNMENT)
        body += data
        offset += len(data)
    head += b"\0" * (-len(head) % ALIGNMENT)
    with open(path, "wb") as f:
        f.write(head + body)


# -------------------------------------------------------------------------------------------------- reading


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        if n > len(self.data) - self.at:
            raise ValueError(f"truncated at byte {self.at}: {n} more wanted")
        self.at += n
        return self.data[self.at - n:self.at]

    def plain(self, fmt):
        return struct.unpack(fmt, self.take(struct.calcsize(fmt)))[0]

    def string(self):
        return self.take(self.plain("<Q")).decode("utf-8")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            item, n = self.plain("<I"), self.plain("<Q")
            if n > len(self.data):
                raise ValueError("array longer than the file")
            return [self.value(item) for _ in range(n)]
        if kind not in PLAIN:
            raise ValueError(f"metadata type {kind} is not used by the demo models")
        return self.plain(PLAIN[kind])


def read(path):
    """(metadata dict, {key: type}, {name: float32 array}).  Raises ValueError on anything out of order."""
    with open(path, "rb") as f:
        r = Reader(f.read())
    if r.take(4) != MAGIC or r.plain("<I") != VERSION:
        raise ValueError("not GGUF version 3")
    n_tensors, n_keys = r.plain("<Q"), r.plain("<Q")
    metadata, kinds, infos = {}, {}, []
    for _ in range(n_keys):
        key, kind = r.string(), r.plain("<I")
        if key in metadata:
            raise ValueError(f"{key} twice")
        metadata[key], kinds[key] = r.value(kind), kind
    for _ in range(n_tensors):
        name, dims = r.string(), r.plain("<I")
        shape = [r.plain("<Q") for _ in range(dims)][::-1]
        infos.append((name, shape, r.plain("<I"), r.plain("<Q")))
    if any(r.take(-r.at % ALIGNMENT)):
        raise ValueError("padding is not zero")
    start, expected, tensors = r.at, 0, {}
    for name, shape, kind, offset in infos:
        if kind not in (*PLAIN_TYPES, TYPE_Q8_0) or name in tensors or offset != expected:
            raise ValueError(f"{name}: bad type, name or offset")
        r.at = start + offset
        data = r.take(tensor_size(shape, kind))
        tensors[name] = dequantize(data, shape) if kind == TYPE_Q8_0 else \
            np.frombuffer(data, PLAIN_TYPES[kind]).reshape(shape).astype(np.float32)
        expected = offset + len(data) + (-len(data) % ALIGNMENT)
    if start + expected != len(r.data):
        raise ValueError("bytes left over at the end")
    return metadata, kinds, tensors
