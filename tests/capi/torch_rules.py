#!/usr/bin/env python3
"""Each update rule of level 0 against PyTorch's own optimizer in double.

100 steps in which learning rate, weight decay, betas and epsilon change. The same comparison must
refuse wrong hyper-parameters.

usage: torch_rules.py LIBRARY EXAMPLE     the folder of examples/02_optimizer/step.py
"""

import ctypes
import sys
from ctypes import byref, c_int32

sys.path.insert(0, sys.argv[2])
from step import Args, Arrays  # noqa: E402  the example's declarations, which this tests, too

try:
    import numpy as np
    import torch
except ImportError as missing:
    print(f"SKIPPED: {missing}; install python3-torch and python3-numpy to compare with PyTorch")
    sys.exit(77)

STEPS, COUNT = 100, 512
# Of what the weights have moved, in units of 2^-24: fp32 rounds p and the states a hundred times.
LIMIT = 50.0

ADAMW, ADAM, SGD, ADAGRAD = 1, 2, 3, 4
PENSTOCK = ctypes.CDLL(sys.argv[1])
PENSTOCK.penstock_last_error.restype = ctypes.c_char_p
PENSTOCK.penstock_cpu_optimizer_step.argtypes = [ctypes.POINTER(Args), ctypes.POINTER(Arrays),
                                                 ctypes.c_void_p, ctypes.POINTER(c_int32)]


def check(status):
    if status != 0:
        sys.exit(f"FAILED: {PENSTOCK.penstock_last_error().decode()}")


def schedule(t, kind, decays):
    """The hyper-parameters of step t that change."""
    out = {"lr": 1e-2 * (1.0 + t % 7) / 7.0, "weight_decay": (0.1 * (t % 3)) if decays else 0.0}
    if kind in (ADAMW, ADAM):
        out["betas"] = (0.9 if t % 2 else 0.8, 0.99 if t < 50 else 0.999)
    if kind in (ADAMW, ADAM, ADAGRAD):
        out["eps"] = 1e-8 if t < 70 else 1e-3
    return out


def gradients(t):
    generator = np.random.default_rng(t)
    size = np.exp(generator.normal(size=COUNT) - 2.0)
    return (size * generator.normal(size=COUNT)).astype(np.float32)


def first_weights():
    return np.random.default_rng(0).normal(size=COUNT).astype(np.float32)


def run_torch(kind, options, decays):
    """The weights after STEPS updates, and how far each has moved in all."""
    p = torch.tensor(first_weights(), dtype=torch.float64, requires_grad=True)
    makers = {ADAMW: torch.optim.AdamW, ADAM: torch.optim.Adam, SGD: torch.optim.SGD,
              ADAGRAD: torch.optim.Adagrad}
    optimizer = makers[kind]([p], lr=1.0, **options)
    moved = np.zeros(COUNT)
    for t in range(1, STEPS + 1):
        optimizer.param_groups[0].update(schedule(t, kind, decays))
        p.grad = torch.tensor(gradients(t), dtype=torch.float64)
        old = p.detach().numpy().copy()
        optimizer.step()
        moved += np.abs(p.detach().numpy() - old)
    return p.detach().numpy().copy(), moved


def run_penstock(kind, options, decays, fault=None):
    args, arrays = Args(), Arrays()
    check(PENSTOCK.penstock_optimizer_args_init(byref(args), ctypes.c_size_t(ctypes.sizeof(args))))
    check(PENSTOCK.penstock_optimizer_arrays_init(byref(arrays),
                                                  ctypes.c_size_t(ctypes.sizeof(arrays))))
    held = {"p": first_weights()}
    for name in ("m", "v", "v_max"):
        held[name] = np.zeros(COUNT, dtype=np.float32)
    held["v"][:] = options.get("initial_accumulator_value", 0.0)
    args.kind, arrays.n = kind, COUNT
    for name, value in options.items():
        if name != "initial_accumulator_value":
            setattr(args, name, int(value) if isinstance(value, bool) else value)
    for t in range(1, STEPS + 1):
        held["grad"] = gradients(t)
        for name, array in held.items():
            setattr(arrays, name, array.ctypes.data)
        args.t = t
        for name, value in schedule(t, kind, decays).items():
            if name == "betas":
                args.beta1, args.beta2 = value
            else:
                setattr(args, name, value)
        if fault is not None:
            fault(args)
        applied = c_int32()
        check(PENSTOCK.penstock_cpu_optimizer_step(args, arrays, None, byref(applied)))
        if applied.value != 1:
            sys.exit("FAILED: a step was skipped")
    return held["p"].astype(np.float64)


CASES = {
    "AdamW": (ADAMW, {}),
    "AdamW, maximize": (ADAMW, {"maximize": True}),
    "AdamW, AMSGrad": (ADAMW, {"amsgrad": True}),
    "Adam": (ADAM, {}),
    "Adam, maximize": (ADAM, {"maximize": True}),
    "Adam, AMSGrad": (ADAM, {"amsgrad": True}),
    "SGD": (SGD, {}),
    "SGD, maximize": (SGD, {"maximize": True}),
    "SGD, momentum": (SGD, {"momentum": 0.9}),
    "SGD, dampening": (SGD, {"momentum": 0.9, "dampening": 0.3}),
    "SGD, Nesterov": (SGD, {"momentum": 0.9, "nesterov": True}),
    "SGD, Nesterov, maximize": (SGD, {"momentum": 0.9, "nesterov": True, "maximize": True}),
    "Adagrad": (ADAGRAD, {}),
    "Adagrad, rate decay": (ADAGRAD, {"lr_decay": 0.02}),
    "Adagrad, accumulator": (ADAGRAD, {"initial_accumulator_value": 0.25, "maximize": True}),
}


def set_later(**values):
    """A fault: these arguments, whatever the schedule says."""
    def fault(args):
        for name, value in values.items():
            setattr(args, name, value)
    return fault


def stale(args):
    args.t = max(1, args.t - 1)


FAULTS = {
    "AdamW": {"stale step": stale, "decay dropped": set_later(weight_decay=0.0),
              "Adam": set_later(kind=ADAM), "eps": set_later(eps=1e-8),
              "beta2": set_later(beta2=0.999), "maximize": set_later(maximize=1)},
    "AdamW, AMSGrad": {"no maximum": set_later(amsgrad=0)},
    "Adam": {"AdamW": set_later(kind=ADAMW), "beta1": set_later(beta1=0.9)},
    "SGD, dampening": {"no dampening": set_later(dampening=0.0), "stale step": stale},
    "SGD, Nesterov": {"plain momentum": set_later(nesterov=0)},
    "Adagrad, rate decay": {"no rate decay": set_later(lr_decay=0.0), "stale step": stale},
}


def difference(ours, theirs, moved):
    return float(np.max(np.abs(ours - theirs) / (2.0 ** -24 * (moved + np.abs(theirs)))))


def main():
    failed = False
    for name, (kind, options) in CASES.items():
        for decays in (False, True):
            theirs, moved = run_torch(kind, options, decays)
            found = difference(run_penstock(kind, options, decays), theirs, moved)
            print(f"{name}{', decay' if decays else ''}: {found:.1f} units, limit {LIMIT:.0f}")
            failed |= not found <= LIMIT
        for fault, change in FAULTS.get(name, {}).items():
            found = difference(run_penstock(kind, options, True, change), theirs, moved)
            print(f"{name}, wrong on purpose ({fault}): {found:.1f} units")
            failed |= found <= LIMIT
    if failed:
        sys.exit("FAILED: see the lines beyond, and the faults within, the limit")


if __name__ == "__main__":
    main()
