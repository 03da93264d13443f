"""Spectral gaps of whole transition matrices beside the bounds of GWG, Theorem 1, and PAS, Theorems 2 and 3.

python -m benchmarks.experiments.spectral_gaps [--only "RBM, weak"] [--short]

All states of up to 12 binary sites are enumerated, and the matrices of two samplers P and R of the same
target are written down in NumPy from the papers' definitions. A theorem says that P is at least c times as
efficient as R, by way of P(x, y) >= c R(x, y) for all x != y. That inequality implies for every function h,
with the asymptotic variance var(h, P) of Grathwohl et al. 2021, Eq. 7, and with Gap(P) of Eq. 8, which is 1 -
(second largest eigenvalue),

    var(h, P) <= var(h, R) / c + (1 - c) / c var(h)    and    Gap(P) >= c Gap(R).

The largest c for which each of the three holds is computed, and stands beside the theorem's own:

- Grathwohl et al. 2021, Theorem 1: GWG (Eq. 5, differences from one gradient) beside the locally balanced
  sampler (Eq. 2, exact differences), c = exp(-L D^2 / 2), where the gradient of the log density has Lipschitz
  constant L and D is the length of a move: 1 for sites of 0 and 1, 2 for spins of -1 and 1.
- Sun et al. 2022, Theorem 3: PAFS (Eq. 5 and 6) beside PAS (section 3.1), lengths of at most U (here uniform
  on 1..U), c = exp(-K U (U + 1) / 2), where K is the constant L above. The length of a move does not occur.
- Sun et al. 2022, Theorem 2: PAS with weights sqrt(t) beside PAS with weights t^a, which the paper's
  Definition 1 allows for every a >= 0; c = 1 / (c_a c_sqrt)^U of Eq. 44, where c_g is the largest Z_g(y) /
  Z_g(x) of neighbours x and y (Lemma 2). This c tends to 1 as sites are added.
"""

import itertools
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import eigh
from scipy.special import expit, gammaln

import pymc_discrete as pmd
from benchmarks.experiments import report
from pymc_discrete import kernels

LONGEST = (1, 2, 3)  # U: the length of a path is uniform on 1..U
POWERS = {"uniform": 0.0, "t": 1.0}  # the weights t^a that are compared with sqrt(t)
STRENGTH = 3.0  # log odds of the biased half of the sites of "two strengths"
QUANTITIES = {"bound": "k|", "entries": "C3s", "variances": "C1o", "gaps": "C0D"}
RUNS, LEAST = 20_000, 10  # of the package's step, from every state; expected of a frequency that is compared


class Written(NamedTuple):
    """A log density as a function of real x, at all states of n sites of 0 and 1.

    Attributes
    ----------
    logp : (2^n,) nats; bit i of a state's number is site i
    gradient : (2^n, n)
    lipschitz : of the gradient; an upper bound of it for an RBM
    """

    logp: np.ndarray
    gradient: np.ndarray
    lipschitz: float


def main():
    args = report.arguments(__doc__, [], steps=RUNS, chains=0, seconds=0)
    table = report.Table("spectral_gaps", args)
    for name, target in targets(args.short).items():
        paths = {}  # matrices of PAS, of which Theorem 1 and Theorem 3 with U = 1 have the same
        for longest in LONGEST[:2] if args.short else LONGEST:
            table.add(name, f"PAFS / PAS, U={longest}", partial(of_theorem_3, target, longest, paths))
        table.add(name, "GWG / locally balanced", partial(of_theorem_1, target, paths))
    for n in (4, 6) if args.short else (4, 6, 8, 10):
        for name, logp in {
            f"ring, theta=0.25, n={n}": quadratic(*ising(ring(n), 0.25)).logp,
            f"two strengths, n={n}": two_strengths(n),
        }.items():
            for weights, power in POWERS.items():
                for longest in LONGEST[:2]:
                    way = f"sqrt / {weights}, U={longest}"
                    table.add(name, way, partial(of_theorem_2, logp, power, longest))
    for n in (24,) if args.short else (24, 100, 400):
        for weights, power in POWERS.items():
            table.add(
                f"two strengths, n={n}", f"sqrt / {weights}, U=1, two numbers", partial(lumped, n, power)
            )
    for name, kernel, longest in (
        ("GWG", kernels.gibbs_with_gradients(), 1),
        ("PAFS, U=3,", kernels.path_auxiliary(2), 3),  # a mean of 2: uniform on 1..3
    ):
        table.add("RBM, 3 sites", f"{name} of the package", partial(of_package, kernel, longest, args))
    table.write(
        "Spectral gaps and the bounds of theorems",
        [
            "P / R: the largest c for which P(x, y) >= c R(x, y) for all x != y (entries), for which the "
            "inequality of asymptotic variances holds for every function (variances: the least generalised "
            "eigenvalue of I - P beside I - R), and Gap(P) / Gap(R) (gaps). Each is at least as large as the "
            "one before.",
            "L: Lipschitz constant of the gradient, sites of 0 and 1. bound: the theorem's c. as spins: "
            "Theorem 3's c as printed, for the same target written in spins of -1 and 1, whose constant is "
            "L / 4. sharper: exp(-L U^2 / 2), which the proof in App. A.7 gives if its constants are kept. "
            "holds: entries >= bound.",
            "Lengths of paths are uniform on 1..U. two strengths: independent sites, half with log odds of "
            f"0, half of {STRENGTH:g}. two numbers: only functions of the number of biased sites that are up "
            "and of the parity of the even ones. Variances and gaps of all functions can be less.",
            f"largest z: {args.steps} steps of the package's kernel from each of 8 states; the frequencies "
            f"whose expectation is {LEAST} or more against the matrix, in standard errors.",
        ],
    )
    table.figure(draw, columns=3, size=(7.0, 6.5))


# ---------------------------------------------------------------- targets
def states(n):
    """(2^n, n) of 0 and 1; bit i of a state's number is site i."""
    return np.arange(2**n)[:, None] >> np.arange(n) & 1


def quadratic(H, b):
    """log p = x'Hx / 2 + b'x."""
    x = states(len(b))
    slope = x @ H
    return Written(0.5 * (slope * x).sum(1) + x @ b, slope + b, np.linalg.norm(H, 2))


def rbm(W, b, c):
    """log p = b'x + sum softplus(W x + c), W (hidden, visible).

    The curvature is W' diag(s (1 - s)) W with s (1 - s) <= 1/4.
    """
    x = states(len(b))
    field = x @ W.T + c
    return Written(x @ b + np.logaddexp(0, field).sum(1), b + expit(field) @ W, np.linalg.norm(W, 2) ** 2 / 4)


def ising(J, theta):
    """H and b of log p = theta s'Js, s = 2 x - 1 (Grathwohl et al. 2021, Eq. 10), up to a constant."""
    return 8 * theta * J, -4 * theta * J.sum(0)


def ring(n):
    J = np.zeros((n, n))
    J[np.arange(n), (np.arange(n) + 1) % n] = 1
    return np.maximum(J, J.T)


def torus(rows, columns):
    """(n, n) 1 for neighbours on a cyclic lattice."""
    at = np.arange(rows * columns).reshape(rows, columns)
    J = np.zeros((at.size, at.size))
    for axis in (0, 1):
        J[at, np.roll(at, 1, axis)] = 1
    return np.maximum(J, J.T)


def random_rbm(n, hidden, scale, seed=0):
    r = np.random.default_rng(seed)
    return scale * r.normal(size=(hidden, n)), 0.5 * r.normal(size=n), 0.5 * r.normal(size=hidden)


def targets(short):
    """{name: Written}."""
    n, lattice = (5, torus(2, 3)) if short else (10, torus(3, 4))
    r, size = np.random.default_rng(1), "x".join(("2", "3") if short else ("3", "4"))
    glass = np.triu(r.normal(size=(n, n)), 1)
    a = r.normal(size=n)
    weak, strong = (ising(lattice, theta) for theta in (0.1, 0.25))
    curvature = np.where(np.arange(n) == 0, 2.0, -2.0)
    return {
        f"Ising {size}, theta=0.1": quadratic(*weak),
        # x (x - 1) is 0 at 0 and at 1: the same distribution, another function
        f"Ising {size}, theta=0.1, plus sum of 2 x(x-1)": quadratic(
            weak[0] + 4 * np.eye(len(lattice)), weak[1] - 2
        ),
        f"Ising {size}, theta=0.25": quadratic(*strong),
        "spin glass": quadratic(glass + glass.T, 0.5 * r.normal(size=n)),
        "RBM, weak": rbm(*random_rbm(n, 5, 0.5)),
        "RBM, strong": rbm(*random_rbm(n, 5, 2.0)),
        "regression": quadratic(-np.outer(a, a) / 0.5**2, a * a[: n // 2].sum() / 0.5**2),
        # one site of curvature 2, the others of -2
        "uniform, as sum of k x(x-1) / 2": quadratic(np.diag(curvature), -curvature / 2),
    }


def two_strengths(n):
    """(2^n,) log density of independent sites: the first half has log odds STRENGTH, the rest 0."""
    return states(n) @ np.where(np.arange(n) < n // 2, STRENGTH, 0.0)


# ---------------------------------------------------------------- matrices
def differences(logp):
    """(S, n) exact differences of all flips."""
    here = np.arange(len(logp))
    return np.stack([logp[here ^ 1 << i] - logp for i in range(len(logp).bit_length() - 1)], axis=1)


def slopes(target):
    """(S, n) estimates of the differences by the gradient (Grathwohl et al. 2021, Eq. 3)."""
    n = target.gradient.shape[1]
    return (1 - 2 * states(n)) * target.gradient


def path_recomputed(weights):
    """A function path -> (S,) probability to take it from each state.

    weights : (S, n), used at every point of the path (Sun et al. 2022, section 3.1)
    """
    Q = weights / weights.sum(1, keepdims=True)

    def probability(path):
        x, p = np.arange(len(Q)), np.ones(len(Q))
        for i in path:
            p, x = p * Q[x, i], x ^ 1 << i
        return p

    return probability


def path_linearised(estimates):
    """The same with weights from the estimates (S, n) at its first state only (Sun et al. 2022, Eq. 5)."""
    at_start = np.exp(estimates / 2)

    def probability(path):
        w, p = at_start.copy(), np.ones(len(at_start))
        for i in path:
            p = p * w[:, i] / w.sum(1)
            w[:, i] = 1 / w[:, i]  # on the linearisation, flipping back undoes the difference
        return p

    return probability


def matrix(logp, probability, longest):
    """(S, S) transition matrix of paths whose length is uniform on 1..longest, accepted as a whole.

    Sun et al. 2022, Eq. 6: the sum over paths of min(forward, pi(y) / pi(x) backward) / longest. With longest
    = 1 it is Metropolis-Hastings with flips of single sites.
    """
    here, n = np.arange(len(logp)), len(logp).bit_length() - 1
    P = np.zeros((len(logp), len(logp)))
    for length in range(1, longest + 1):
        for path in itertools.product(range(n), repeat=length):
            y = here ^ np.bitwise_xor.reduce([1 << i for i in path])
            back = np.exp(logp[y] - logp) * probability(path[::-1])[y]
            P[here, y] += np.minimum(probability(path), back) / longest
    P[here, here] += 1 - P.sum(1)
    return P


def symmetric(P, logp):
    """sqrt(pi_i / pi_j) P_ij, with the eigenvalues of P."""
    M = np.exp((logp[:, None] - logp) / 2) * P
    return (M + M.T) / 2


def gap(M):
    """1 - the second largest eigenvalue (Grathwohl et al. 2021, Eq. 8)."""
    return 1 - eigh(M, eigvals_only=True, subset_by_index=[len(M) - 2, len(M) - 2])[0]


def compared(logp, P, R, bound):
    """The largest c of entries, variances and gaps, P beside R, and the bound.

    For h of mean 0, var(h, P) = <h, (2 (I - P)^-1 - I) h>, so that the inequality of variances for all h is
    I - P >= c (I - R) on these h.
    """
    moves = (R > 0) & ~np.eye(len(R), dtype=bool)
    entries = (P[moves] / R[moves]).min()
    P, R = symmetric(P, logp), symmetric(R, logp)
    root = np.exp((logp - logp.max()) / 2)
    constant = np.outer(root, root) / (root @ root)  # projects on constant functions
    identity = np.eye(len(P))
    # constant functions get the eigenvalue 1000, and are not the least
    least = eigh(
        identity - P + 1000 * constant,
        identity - R + constant,
        eigvals_only=True,
        subset_by_index=[0, 0],
    )[0]
    gap_p, gap_r = gap(P), gap(R)
    return {
        "bound": bound,
        "entries": entries,
        "variances": least,
        "gaps": gap_p / gap_r,
        "gap of P": gap_p,
        "gap of R": gap_r,
        "holds": bool(entries >= bound * (1 - 1e-9)),
    }


def balanced(target, longest, paths):
    """The matrix of PAS, made once."""
    if longest not in paths:
        weights = np.exp(differences(target.logp) / 2)
        paths[longest] = matrix(target.logp, path_recomputed(weights), longest)
    return paths[longest]


def of_theorem_1(target, paths):
    P = matrix(target.logp, path_linearised(slopes(target)), 1)
    bound = np.exp(-target.lipschitz / 2)
    return {"L": target.lipschitz, **compared(target.logp, P, balanced(target, 1, paths), bound)}


def of_theorem_3(target, longest, paths):
    P = matrix(target.logp, path_linearised(slopes(target)), longest)
    L, exponent = target.lipschitz, longest * (longest + 1) / 2
    row = compared(target.logp, P, balanced(target, longest, paths), np.exp(-L * exponent))
    return {
        "L": L,
        **row,
        "as spins": np.exp(-L / 4 * exponent),
        "holds as spins": bool(row["entries"] >= np.exp(-L / 4 * exponent) * (1 - 1e-9)),
        "sharper": np.exp(-L * longest**2 / 2),
    }


def of_theorem_2(logp, power, longest):
    d, here = differences(logp), np.arange(len(logp))
    made = {}
    for a in (0.5, power):
        weights = np.exp(a * d)
        Z = weights.sum(1)
        # Lemma 2: the largest ratio of normalising sums of neighbours
        largest = max((Z[here ^ 1 << i] / Z).max() for i in range(d.shape[1]))
        made[a] = matrix(logp, path_recomputed(weights), longest), largest
    (P, c_sqrt), (R, c) = made[0.5], made[power]
    return compared(logp, P, R, (1 / (c * c_sqrt)) ** longest)


def lumped(n, power):
    """The row of `two_strengths` with n sites and U = 1, on two numbers only: how many of the biased sites
    are up, and the parity of the even ones.

    They are a Markov chain by themselves, since the normalising sum depends on the first alone.
    """
    m = n // 2
    up = np.arange(m + 1)
    logp = gammaln(m + 1) - gammaln(up + 1) - gammaln(m - up + 1) + STRENGTH * up
    made = {}
    for a in (0.5, power):
        rise, fall = np.exp(a * STRENGTH), np.exp(-a * STRENGTH)
        Z = (m - up) * rise + up * fall + m
        P = np.zeros((2, m + 1, 2, m + 1))
        for s in (0, 1):
            P[s, up, 1 - s, up] = m / Z
            forth = np.minimum(rise / Z[:-1], np.exp(STRENGTH) * fall / Z[1:])
            back = np.minimum(fall / Z[1:], np.exp(-STRENGTH) * rise / Z[:-1])
            P[s, up[:-1], s, up[1:]] = (m - up[:-1]) * forth
            P[s, up[1:], s, up[:-1]] = up[1:] * back
        P = P.reshape(2 * m + 2, 2 * m + 2)
        P += np.diag(1 - P.sum(1))
        made[a] = P, max((Z[1:] / Z[:-1]).max(), (Z[:-1] / Z[1:]).max())
    (P, c_sqrt), (R, c) = made[0.5], made[power]
    return compared(np.concatenate([logp, logp]), P, R, 1 / (c * c_sqrt))


# ---------------------------------------------------------------- the package's own steps
def of_package(kernel, longest, args):
    """Frequencies of compiled steps from all states of an RBM of 3 sites, against the matrix."""
    W, b, c = random_rbm(3, 5, 2.0)
    written = rbm(W, b, c)
    expected = matrix(written.logp, path_linearised(slopes(written)), longest)
    space = pmd.Space.build({"x": (np.zeros(3), np.ones(3))})
    target = pmd.target_from_logdensity(
        lambda x: b @ x + jax.nn.softplus(W @ x + c).sum(), space, differences="gradient"
    )
    kernel, params = kernel

    @jax.jit
    def ends(keys, x):
        state = kernel.init(x, target)
        return jax.lax.map(lambda key: kernel.step(key, state, target, params)[0].x, keys)

    keys = jax.random.split(jax.random.key(args.seed), (8, args.steps))
    z = []
    for x, own, row in zip(states(3), keys, expected, strict=True):
        counts = np.bincount(np.asarray(ends(own, jnp.asarray(x))) @ [1, 2, 4], minlength=8)
        error = np.sqrt(args.steps * row * (1 - row))
        often = (args.steps * row >= LEAST) & (error > 0)
        z.append((counts - args.steps * row)[often] / error[often])
    z = np.abs(np.concatenate(z))
    return {"largest z": z.max(), "frequencies": len(z)}


# ---------------------------------------------------------------- figure
def draw(axes, rows):
    for ax, way, title in zip(
        axes[:2],
        ("GWG", "PAFS / PAS"),
        ("GWG, Theorem 1: GWG / locally balanced", "PAS, Theorem 3: PAFS / PAS"),
        strict=True,
    ):
        mine = [r for r in rows if r["sampler"].startswith(way) and "bound" in r]
        for what, look in QUANTITIES.items():
            ax.plot([r[what] for r in mine], range(len(mine)), look, ms=6, label=what)
        if way != "GWG":
            ax.plot([r["as spins"] for r in mine], range(len(mine)), "C2x", label="bound as spins")
        ax.set_yticks(range(len(mine)), [label(r) for r in mine], fontsize=6)
        ax.set(
            xscale="log", xlabel="largest c (bounds below 1e-7 are not shown)", title=title, xlim=(1e-7, 3)
        )
        ax.invert_yaxis()
    mine = [r for r in rows if r["setting"].startswith("two strengths") and "U=1" in r["sampler"]]
    for weights, colour in zip(POWERS, ("C0", "C1"), strict=True):
        for what, dashes in {"bound": ":", "entries": "--", "variances": "-.", "gaps": "-"}.items():
            every = [r for r in mine if f"/ {weights}," in r["sampler"]]
            every.sort(key=lambda r: number_of_sites(r["setting"]))
            axes[2].plot(
                [number_of_sites(r["setting"]) for r in every],
                [r[what] for r in every],
                color=colour,
                ls=dashes,
                marker=".",
                label=f"{what}, sqrt / {weights}",
            )
    axes[2].set(
        xscale="log",
        yscale="log",
        xlabel="sites",
        ylabel="largest c",
        title="PAS, Theorem 2: two strengths, U = 1",
    )
    axes[2].legend(fontsize=7, handlelength=4)


def label(row):
    return row["setting"] + row["sampler"].partition("PAS")[2]


def number_of_sites(setting):
    return int(setting.partition("n=")[2])


if __name__ == "__main__":
    main()
