#!/usr/bin/env python3
"""Writes mhc_golden.json: results of mhc_ref.py in double precision, for inputs that the Rust test makes by the same
formula. Run it again after a change of either: python3 golden.py > mhc_golden.json"""
import json
import numpy as np
import mhc_ref as ref

F32 = np.float32


def numbers(salt, shape):
    """One number of 24 bits for each position, from the position and the salt."""
    with np.errstate(over="ignore"):
        x = np.arange(int(np.prod(shape)), dtype=np.uint32) * np.uint32(0x9E3779B1) ^ np.uint32(salt * 0x85EBCA77 & 0xFFFFFFFF)
        x ^= x >> np.uint32(15)
        x = x * np.uint32(0x2C1B3C6D)
        x ^= x >> np.uint32(13)
    return (x >> np.uint32(8)).reshape(shape)


def signed(salt, shape, bits, scale):
    top = numbers(salt, shape) >> np.uint32(24 - bits)
    return ((top.astype(np.int64) - (1 << (bits - 1))) * scale).astype(F32)


def case(variant, M, d, hc, iters, slow, norm, eps):
    J = hc if variant == "head" else hc * (2 + hc)
    scales = 1 if variant == "head" else 3
    x = signed(1, (M, d), 8, 2.0 ** -5)
    residual = signed(2, (M, hc, d), 8, 2.0 ** -5)
    post = (numbers(3, (M, hc)) * 2.0 ** -23).astype(F32)
    comb = ((numbers(4, (M, hc, hc)) >> np.uint32(12)) * 2.0 ** -12 / hc).astype(F32)
    fn = signed(5, (J, hc * d), 12, 2.0 ** -15)
    scale = np.array([0.75, 0.875, 1.25], F32)[:scales]
    base = signed(6, (J,), 8, 2.0 ** -7)
    if slow:                     # a triangle converges slowly
        c = np.where(np.triu(np.ones((hc, hc))) > 0, 6.0, -6.0).astype(F32)
        base[2 * hc:] += c.ravel()
    weight = ref.bf16(signed(7, (d,), 8, 2.0 ** -6) + F32(1))
    pre_in = (numbers(8, (M, hc)) * 2.0 ** -23).astype(F32)
    rms, pre_eps, sk = eps
    kw = dict(iters=iters, rms_eps=rms, pre_eps=pre_eps, sk_eps=sk, post_mult=2.0, ft=np.float64)
    out = {}
    res = residual
    if variant in ("v4", "v41", "post"):
        res = ref.hc_post(x, residual, post, comb, ft=np.float64)
        out["residual"] = res
    if variant == "head":
        out["y"] = ref.hc_head(res, fn, scale, base, rms, pre_eps, ft=np.float64)
    elif variant != "post":
        y, out["pre"], out["post"], out["comb"] = ref.hc_pre(res, fn, scale, base, **kw)
        out["y"] = ref.collapse(res, pre_in, np.float64) if variant == "v41" else y
    if norm:
        out["normed"] = ref.rms_norm(out["y"], weight, norm, np.float64)
    bits = {k: (ref.bf16_bits(v) if k in ("residual", "y", "normed") else v.astype(F32).view(np.uint32)).ravel().tolist()
            for k, v in out.items()}
    return dict(variant=variant, rows=M, hidden=d, streams=hc, iterations=iters, slow=slow, norm=norm or 0.0,
                rms_eps=rms, pre_eps=pre_eps, sinkhorn_eps=sk, outputs=bits)


usual, large = (1e-6, 1e-6, 1e-6), (0.0625, 0.015625, 0.0078125)
cases = [
    case("v4", 2, 160, 4, 20, False, 1e-6, usual),
    case("v4", 1, 64, 2, 20, False, None, large),
    case("v4", 1, 136, 4, 20, True, None, usual),
    case("v4", 1, 96, 8, 20, False, 0.03125, large),
    case("v41", 2, 130, 4, 20, False, 1e-6, usual),
    case("post", 2, 72, 4, 20, False, None, usual),
    case("pre", 2, 72, 4, 20, False, None, large),
    case("head", 2, 200, 4, 20, False, 1e-6, large),
]
print(json.dumps(cases, separators=(",", ":")).replace('},{"variant"', '},\n{"variant"'))
