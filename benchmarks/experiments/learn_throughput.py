"""Iterations of learning in a second, beside the loop of Grathwohl et al. 2021 in PyTorch, in float32.

uv run --with torch --no-sync python -m benchmarks.experiments.learn_throughput --out ...

The Ising model of 25x25 spins of `learn_ising` (256 persistent chains) and the network of `learn_digits` (100
chains of a buffer of 5000), both learned with Gibbs-With-Gradients, one flip a transition, and Adam. PyTorch
is no dependency: without it, its rows are shown as "cannot run".
"""

import importlib.util
import os
import time

import numpy as np

from benchmarks import harness

ISING, DIGITS = "Ising 25x25", "digits"
CASES = [(ISING, 5), (ISING, 50), (DIGITS, 40)]
OURS, KEPT, WRITTEN = "pymc_discrete", "PyTorch", "PyTorch, as written"
SIDE, THETA, SWEEPS = 25, 0.25, 100  # the data of the Ising model are drawn by so many sweeps
COUNTED = 2  # iterations of which the evaluations are counted


# ---------------------------------------------------------------- what is learned
def ising():
    """The model, data (N, d) int, options of `fit`, and a sampler of so many transitions."""
    import jax
    import jax.numpy as jnp

    from benchmarks.experiments import learn_ising, structured
    from pymc_discrete import kernels, learning

    couplings, bias = structured.lattice(SIDE, THETA)
    model = learning.Ising(len(bias))
    options = {
        "chains": learn_ising.CHAINS,
        "batch": learn_ising.CHAINS,
        "l1": learn_ising.L1,
        "params": jax.tree.map(jnp.zeros_like, model.start(jax.random.key(0))),
    }

    def sampler(transitions):
        return learning.ContrastiveDivergence(
            *kernels.gibbs_with_gradients(), transitions, differences="gradient"
        )

    return model, np.asarray(structured.draws_of(couplings, bias, SWEEPS)), options, sampler


def digits(around=lambda network: network):
    """The same; `around` wraps the network."""
    import equinox as eqx
    import jax
    from sklearn.datasets import load_digits

    from benchmarks.experiments import learn_digits
    from pymc_discrete import Space, kernels, learning

    data = (load_digits(return_X_y=True)[0] > 7).astype(int)
    pixels, width = learn_digits.PIXELS, learn_digits.WIDTH
    network = eqx.nn.MLP(pixels, "scalar", width, 3, jax.nn.swish, key=jax.random.key(0))
    network = jax.tree.map(lambda a: a.astype("float32") if eqx.is_inexact_array(a) else a, network)
    space = Space.build({"x": (0, 1)}, shapes={"x": (pixels,)})
    options = {"chains": learn_digits.CHAINS, "batch": learn_digits.CHAINS, "ema": 0.999}

    def sampler(transitions):
        return learning.ReplayBuffer(
            *kernels.gibbs_with_gradients(), transitions, differences="gradient", size=learn_digits.BUFFER
        )

    return learning.Neural(space, around(network), base={"x": data}), data, options, sampler


def rate_of(case):
    from benchmarks.experiments import learn_digits, learn_ising

    return learn_ising.RATE if case == ISING else learn_digits.SETTINGS["black and white"].rate


# ---------------------------------------------------------------- by this package
def ours(case, transitions, args):
    """Seconds of an iteration, the acceptance and, of a network, the evaluations in an iteration."""
    import jax
    import optax

    from benchmarks.experiments.iterations import seconds_each
    from pymc_discrete import kernels, learning

    model, data, options, make = ising() if case == ISING else digits()
    sampler = make(transitions)
    options |= {"sampler": sampler, "optimizer": optax.adam(rate_of(case)), "progressbar": False}
    seconds = seconds_each(args.few, model, {"x": data}, **options)
    fit = learning.fit(model, {"x": data}, iterations=args.learned, **options)
    target = model.density(fit.params).to_target("gradient")
    x = fit.kept.x[: options["chains"]]

    def accepted(key, x):
        state = sampler.kernel.init(x, target)
        return kernels.loop(sampler.kernel, key, state, target, sampler.params, transitions)[1].accept

    accept = jax.jit(jax.vmap(accepted))(jax.random.split(jax.random.key(1), len(x)), x).mean()
    evaluations = counted(transitions, options) if case == DIGITS else None
    return {"seconds": seconds, "accept": float(accept), "evaluations": evaluations}


def counted(transitions, options):
    """Evaluations of the network in an iteration, each of all chains: of data, of draws, along the chains."""
    import equinox as eqx
    import jax

    from pymc_discrete import learning

    calls = []

    class Counted(eqx.Module):
        network: eqx.Module

        def __call__(self, a):
            # called once for all chains that `vmap` evaluates together
            jax.debug.callback(lambda: calls.append(1))
            return self.network(a)

    model, data, *_ = digits(Counted)
    learning.fit(model, {"x": data}, iterations=COUNTED, **options)
    jax.effects_barrier()
    return len(calls) / COUNTED


# ---------------------------------------------------------------- by PyTorch
def in_torch(case, transitions, args, cores, as_written):
    """The same for a loop in PyTorch's eager mode.

    as_written : whether both differences of a transition are computed in it, as in Algorithm 1; otherwise
        those of the current state are kept from the transition before
    """
    if importlib.util.find_spec("torch") is None:
        raise harness.CannotRun("PyTorch is not installed: uv run --with torch --no-sync ...")
    import torch

    torch.set_num_threads(cores)
    torch.manual_seed(0)
    model, data, options, _ = ising() if case == ISING else digits()
    data = torch.tensor(np.asarray(data), dtype=torch.float32)
    make = Ising if case == ISING else Network
    learner = Learner(make(model, options), data, options, rate_of(case), transitions, as_written)
    for _ in range(args.few):
        learner.iterate()
    begin = time.perf_counter()
    for _ in range(2 * args.few):
        learner.iterate()
    seconds = (time.perf_counter() - begin) / (2 * args.few)
    for _ in range(args.learned - 3 * args.few):
        learner.iterate()
    learner.evaluations = 0
    accept = learner.iterate()
    return {
        "seconds": seconds,
        "accept": float(accept),
        "evaluations": learner.evaluations / options["chains"],
    }


class Ising:
    """log p = sum_{i < j} W_ij s_i s_j + b's of s = 2 x - 1, with an l1 penalty on W."""

    def __init__(self, model, options):
        import torch

        d, self.l1 = model.n, options["l1"]
        self.weights = torch.zeros(d, d, requires_grad=True)
        self.bias = torch.zeros(d, requires_grad=True)
        self.parameters, self.buffer = [self.weights, self.bias], None

    def density(self):
        """A function of x (n, d) for the parameters as they are."""
        upper = self.weights.triu(1)
        matrix = upper + upper.T

        def logdensity(x):
            s = 2 * x - 1
            return ((s @ matrix) * s).sum(1) / 2 + s @ self.bias

        return logdensity

    def penalty(self):
        return self.l1 * self.weights.triu(1).abs().sum()


class Network:
    """The network of the digits, from the same weights, plus the base distribution."""

    def __init__(self, model, options):
        import torch

        layers = model.network(model.params).layers
        self.parameters = [
            torch.tensor(np.array(a), requires_grad=True)
            for layer in layers
            for a in (layer.weight, layer.bias)
        ]
        self.log_base = torch.tensor(np.asarray(model.log_base), dtype=torch.float32)

    def density(self):
        from torch.nn import functional

        *hidden, last = zip(self.parameters[::2], self.parameters[1::2], strict=True)

        def logdensity(x):
            a = x
            for weight, bias in hidden:
                a = functional.silu(functional.linear(a, weight, bias))
            a = functional.linear(a, *last).squeeze(1)
            return a + x @ self.log_base[:, 1] + (1 - x) @ self.log_base[:, 0]

        return logdensity

    def penalty(self):
        return 0.0


class Learner:
    """Persistent chains, of which some move in an iteration, and the parameters (Grathwohl et al. 2021)."""

    def __init__(self, model, data, options, rate, transitions, as_written):
        import torch

        self.model, self.data, self.transitions, self.as_written = model, data, transitions, as_written
        self.chains, self.ema, self.evaluations = options["chains"], options.get("ema"), 0
        size = self.chains if isinstance(model, Ising) else 5000
        if isinstance(model, Ising):
            self.buffer = torch.randint(2, (size, data.shape[1])).float()
        else:
            self.buffer = torch.bernoulli(model.log_base[:, 1].exp().expand(size, -1))
        self.optimizer = torch.optim.Adam(model.parameters, lr=rate)
        self.averaged = [p.detach().clone() for p in model.parameters] if self.ema else []

    def iterate(self):
        """One iteration; returns the mean acceptance of its transitions."""
        import torch

        batch = self.data[torch.randint(len(self.data), (self.chains,))]
        chosen = torch.randperm(len(self.buffer))[: self.chains]
        draws, accept = self.moved(self.buffer[chosen])
        self.buffer[chosen] = draws
        logdensity = self.model.density()
        self.evaluations += len(draws) + len(batch)
        loss = logdensity(draws).mean() - logdensity(batch).mean() + self.model.penalty()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if self.averaged:
            torch._foreach_lerp_(self.averaged, [p.detach() for p in self.model.parameters], 1 - self.ema)
        return accept

    def moved(self, x):
        """x (n, d) after all transitions, and their mean acceptance."""
        import torch

        with torch.no_grad():
            logdensity, accepts = self.model.density(), []
            state = (x, *self.at(logdensity, x))
            for _ in range(self.transitions):
                if self.as_written and accepts:
                    state = (state[0], *self.at(logdensity, state[0]))
                state, accept = self.transition(logdensity, *state)
                accepts.append(accept)
        return state[0], torch.stack(accepts).mean()

    def at(self, logdensity, x):
        """log densities (n,), and estimated differences of all flips (n, d) (Eq. 3)."""
        import torch

        self.evaluations += len(x)
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            values = logdensity(x)
            (slopes,) = torch.autograd.grad(values.sum(), x)
        return values.detach(), (1 - 2 * x.detach()) * slopes

    def transition(self, logdensity, x, value, differences):
        """One transition of every chain (Algorithm 1), and the mean acceptance."""
        import torch

        log_q = torch.log_softmax(differences / 2, dim=1)
        site = torch.multinomial(log_q.exp(), 1)
        y = x.scatter(1, site, 1 - x.gather(1, site))
        there = (y, *self.at(logdensity, y))
        log_back = torch.log_softmax(there[2] / 2, dim=1).gather(1, site)
        accept = (there[1] - value + (log_back - log_q.gather(1, site)).squeeze(1)).clamp(max=0.0).exp()
        accepted = torch.rand(len(x)) < accept
        pairs = zip(there, (x, value, differences), strict=True)
        state = [
            torch.where(accepted if new.ndim == 1 else accepted[:, None], new, old) for new, old in pairs
        ]
        return tuple(state), accept.mean()


# ---------------------------------------------------------------- rows
def options(p):
    p.add_argument("--few", type=int, default=5, help="iterations before those that are timed, twice as many")
    p.add_argument("--learned", type=int, default=100, help="iterations before the acceptance is measured")
    p.add_argument("--limit", type=float, default=120, help="seconds for a row in all")


def rows(args, records):
    for case, transitions in CASES:
        for cores in (1, 2):
            for library in (OURS, KEPT, WRITTEN):
                key = {"model": case, "transitions": transitions, "cores": cores, "library": library}
                yield harness.Row(key, {"PYTENSOR_FLAGS": "floatX=float32"})


def measure(args, model, transitions, cores, library):
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < cores:
        raise harness.CannotRun(f"needs {cores} cores")
    os.sched_setaffinity(0, usable[-cores:])  # before JAX counts its threads
    if library == OURS:
        return ours(model, transitions, args)
    return in_torch(model, transitions, args, cores, library == WRITTEN)


def progress(r):
    return f"{1 / r['seconds']:.3g} iterations/s, acceptance {r['accept']:.3f}"


# ---------------------------------------------------------------- tables
COLUMNS = ["model", "T", "cores", "library", "iterations/s", "ours faster by", "evaluations", "acceptance"]


def markdown(args, records):
    found = {
        (r["model"], r["transitions"], r["cores"], r["library"]): r for r in records if r["status"] == "ok"
    }
    lines, notes = [], []
    for r in records:
        place = r["model"], r["transitions"], r["cores"]
        cells = [*place, harness.label(r["library"], r["library"] == OURS)]
        if r["status"] != "ok":
            lines.append([*cells, r["status"]])
            notes.append(f"- {r['library']}: {r['reason']}")
            continue
        own = found.get((*place, OURS))
        ratio = f"{r['seconds'] / own['seconds']:.2g}x" if own and r["library"] != OURS else ""
        count = f"{r['evaluations']:.3g}" if r["evaluations"] else ""
        lines.append([*cells, f"{1 / r['seconds']:.3g}", ratio, count, f"{r['accept']:.3f}"])
    title = ["# Iterations of learning in a second", "", *harness.origins(records), ""]
    return "\n".join([*title, *harness.table(COLUMNS, lines), "", *dict.fromkeys(notes), FOOTNOTE])


FOOTNOTE = """- float32, one run; T transitions of Gibbs-With-Gradients with one flip in an iteration.
  Ising 25x25: 256 persistent chains, batches of 256, an l1 penalty. digits: a network 64-256-256-256-1, 100
  of 5000 chains, a moving average of the weights. Compiling is not timed.
- PyTorch: eager mode, the same sizes, data and first weights. It keeps the differences of the current state;
  as written, Algorithm 1 computes those of both states in every transition.
- evaluations: of the log density, in an iteration and of all chains, counted in a run: 2 for the gradient of
  the parameters, the others along the chains. Ours makes one more transition with probability 1/2.
- acceptance: mean after as many iterations from the same start.
"""

if __name__ == "__main__":
    harness.main(
        harness.Benchmark(
            __doc__,
            rows,
            measure,
            markdown,
            progress,
            options,
            short={"few": 1, "learned": 4},
            packages=("torch",),
        )
    )
