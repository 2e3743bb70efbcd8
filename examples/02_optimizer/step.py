#!/usr/bin/python3
"""Level 0 from Python, with ctypes alone: AdamW updates on arrays of the program's own.

usage: step.py [LIBRARY]     default: libpenstock.so.0; expected output: expected.txt
"""

import ctypes
import sys
from ctypes import POINTER, byref, c_double, c_float, c_int32, c_uint32, c_uint64, c_void_p


class Args(ctypes.Structure):  # penstock_optimizer_args
    _fields_ = ([("struct_size", c_uint32), ("kind", c_int32), ("t", c_uint64)] +
                [(name, c_double) for name in ("lr", "beta1", "beta2", "eps", "weight_decay",
                                               "gradient_factor", "momentum", "dampening",
                                               "lr_decay")] +
                [(name, c_int32) for name in ("nesterov", "amsgrad", "maximize",
                                              "gradients_checked")] +
                [("seed", c_uint64)])


class Arrays(ctypes.Structure):  # penstock_optimizer_arrays
    _fields_ = ([("struct_size", c_uint32)] +
                [(name, c_int32) for name in ("grad_dtype", "out_dtype", "state_dtype")] +
                [("n", c_uint64)] +
                [(name, c_void_p) for name in ("p", "hi", "lo", "m", "v", "v_max", "grad", "out")] +
                [("tensor", c_uint64), ("first_element", c_uint64)] +
                [(name, c_void_p) for name in ("m_scale", "v_scale", "lo8")] +
                [("bf16_weights", c_int32)])


penstock = ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else "libpenstock.so.0")
penstock.penstock_last_error.restype = ctypes.c_char_p
penstock.penstock_cpu_optimizer_step.argtypes = [POINTER(Args), POINTER(Arrays), c_void_p,
                                                 POINTER(c_int32)]


def check(status):
    if status != 0:
        sys.exit(penstock.penstock_last_error().decode())


def step(args, arrays):
    applied = c_int32()
    check(penstock.penstock_cpu_optimizer_step(args, arrays, None, byref(applied)))
    return applied.value


def main():
    four = c_float * 4
    p, grad, m, v = four(1, -2, 3, -4), four(), four(), four()

    args, arrays = Args(), Arrays()
    check(penstock.penstock_optimizer_args_init(byref(args), ctypes.c_size_t(ctypes.sizeof(args))))
    check(penstock.penstock_optimizer_arrays_init(byref(arrays),
                                                  ctypes.c_size_t(ctypes.sizeof(arrays))))
    args.lr, args.weight_decay, arrays.n = 0.1, 0.01, 4
    for name, array in (("p", p), ("m", m), ("v", v), ("grad", grad)):
        setattr(arrays, name, ctypes.addressof(array))

    for args.t in range(1, 4):
        grad[:] = p[:]  # of the loss p^2 / 2
        step(args, arrays)
        print(f"update {args.t}:", *(f"{value:.6f}" for value in p))
    grad[2] = float("inf")
    print("an infinite gradient: applied", step(args, arrays))


if __name__ == "__main__":
    main()
