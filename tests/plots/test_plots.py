"""What plots show is what the draws say, with both backends."""

import matplotlib
import numpy as np
import pytest
import xarray as xr
from arviz_base import from_dict
from arviz_base.labels import DimCoordLabeller

import pymc_discrete as pmd
from pymc_discrete.diagnostics.draws import PARTITIONS_ATTRIBUTE

matplotlib.use("Agg")
import matplotlib.pyplot as plt

BACKENDS = ("matplotlib", "plotly")
PLOTS = (
    pmd.plot_probabilities,
    pmd.plot_inclusion,
    pmd.plot_coclustering,
    pmd.plot_counts,
    pmd.plot_moves,
    pmd.plot_chains,
)


@pytest.fixture(params=BACKENDS)
def backend(request):
    yield request.param
    plt.close("all")


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def tree_of(z, coords=None, dims=None, probabilities=None, observed=None, **more):
    """A result with draws z (chains, draws, ...), and mean probabilities (chains, ..., values) if given."""
    groups = {"posterior": {"z": z, **more}}
    if observed is not None:
        groups["observed_data"] = {"y": observed}
    tree = from_dict(groups, coords=coords, dims=dims)
    if probabilities is not None:
        names = tree["posterior"]["z"].dims[2:]
        values = np.arange(probabilities.shape[-1])
        group = xr.Dataset({"z": (["chain", *names, "z value"], probabilities)}, {"z value": values})
        tree["probabilities"] = xr.DataTree(group)
    return tree


def shares(z, values):
    """(elements, values), counted one by one."""
    flat = z.reshape(-1, int(np.prod(z.shape[2:], dtype=int)))
    return np.array([[(flat[:, i] == v).sum() / len(flat) for v in values] for i in range(flat.shape[1])])


def heights(bars):
    """The heights, and the lower ends, of bars."""
    if hasattr(bars, "get_paths"):
        corners = np.array([path.vertices[:4] for path in bars.get_paths()])
        return corners[:, 1, 1] - corners[:, 0, 1], corners[:, 0, 1]
    return np.asarray(bars.y, float), np.asarray(bars.base, float)


def cells(image):
    """The numbers of an image, from below."""
    return np.asarray(image.get_array() if hasattr(image, "get_array") else image.z, float)


def places(dots):
    """The places (n, 2) of dots or of a line."""
    if hasattr(dots, "get_offsets"):
        return np.asarray(dots.get_offsets())
    if hasattr(dots, "get_xydata"):
        return np.asarray(dots.get_xydata())
    return np.stack([np.asarray(dots.x, float), np.asarray(dots.y, float)], axis=1)


def title(collection, panel="z"):
    artist = collection.get_viz("title", panel)
    return (artist.get_text() if hasattr(artist, "get_text") else artist.text).replace("<br>", "\n")


def tick_labels(collection, panel="z", axis="x"):
    target = collection.get_target(panel, {})
    if hasattr(target, "get_xticklabels"):
        return [t.get_text() for t in getattr(target, f"get_{axis}ticklabels")()]
    return list(getattr(target.figure.get_subplot(target.row, target.col), f"{axis}axis").ticktext)


def legend(collection):
    """The texts of the legend."""
    figure = collection.get_viz("figure")
    if hasattr(figure, "legends"):
        return [t.get_text() for t in figure.legends[0].get_texts()]
    return [t.name for t in figure.data if t.showlegend]


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)], ids=["scalar", "vector", "matrix"])
@pytest.mark.parametrize("chains", [1, 3])
def test_bars_are_the_shares_of_draws(rng, backend, shape, chains):
    z = rng.choice([0, 1, 4], p=[0.6, 0.3, 0.1], size=(chains, 50, *shape))
    drawn = pmd.plot_probabilities(tree_of(z), "z", backend=backend)
    expected = shares(z, [0, 1, 4])
    for k, value in enumerate([0, 1, 4]):
        height, bottom = heights(drawn.get_viz("bars", "z", value=value))
        np.testing.assert_allclose(height, expected[:, k], atol=1e-12)
        np.testing.assert_allclose(bottom, expected[:, :k].sum(axis=1), atol=1e-12)
    assert title(drawn) == f"z: probability of each value (share of {chains} × 50 draws)"
    assert legend(drawn) == ["4", "1", "0"]
    names = {(): ["z"], (3,): ["0", "1", "2"], (2, 3): ["0, 0", "0, 1", "0, 2", "1, 0", "1, 1", "1, 2"]}
    assert tick_labels(drawn) == names[shape]


def test_coords_name_and_choose_the_elements(rng, backend):
    z = rng.integers(0, 3, (2, 40, 4))
    tree = tree_of(z, {"site": ["a", "b", "c", "d"]}, {"z": ["site"]})
    drawn = pmd.plot_probabilities(
        tree, coords={"site": ["d", "b"]}, labeller=DimCoordLabeller(), backend=backend
    )
    height, _ = heights(drawn.get_viz("bars", "z", value=2))
    np.testing.assert_allclose(height, shares(z, [2])[[3, 1], 0], atol=1e-12)
    assert tick_labels(drawn) == ["site: d", "site: b"]
    one = pmd.plot_chains(tree, coords={"site": "c", "chain": 1}, backend=backend)
    np.testing.assert_array_equal(cells(one.get_viz("image", "z"))[0], z[1, :, 2])


def test_what_was_summed_out_is_drawn_from_its_probabilities(rng, backend):
    p = rng.dirichlet(np.ones(3), size=(2, 4))
    z = rng.integers(0, 3, (2, 30, 4))
    p[..., 2] = 0
    p /= p.sum(axis=-1, keepdims=True)
    tree = tree_of(z, probabilities=p)
    drawn = pmd.plot_probabilities(tree, "z", backend=backend)
    height, _ = heights(drawn.get_viz("bars", "z", value=1))
    np.testing.assert_allclose(height, p[..., 1].mean(axis=0), atol=1e-12)
    assert "summed out, mean over 2 × 30 draws" in title(drawn)
    assert legend(drawn) == ["1", "0"]
    # a chain in which an element was never in the part that is summed out
    tree["probabilities"]["z"][0, 1] = np.nan
    height, _ = heights(pmd.plot_probabilities(tree, "z", backend=backend).get_viz("bars", "z", value=1))
    assert height[1] == pytest.approx(p[1, 1, 1])


def test_several_variables_have_the_same_colours(rng, backend):
    z, k = rng.integers(0, 2, (2, 40, 3)), rng.integers(1, 4, (2, 40))
    drawn = pmd.plot_probabilities(tree_of(z, k=k), backend=backend)
    assert legend(drawn) == ["3", "2", "1", "0"]
    np.testing.assert_allclose(
        heights(drawn.get_viz("bars", "z", value=1))[0], shares(z, [1])[:, 0], atol=1e-12
    )
    np.testing.assert_allclose(
        heights(drawn.get_viz("bars", "k", value=1))[0], shares(k, [1])[:, 0], atol=1e-12
    )


def test_by_default_what_the_model_draws_is_drawn(rng, backend):
    tree = tree_of(rng.integers(0, 2, (2, 40, 3)), total=rng.integers(0, 9, (2, 40)))
    assert set(pmd.plot_counts(tree, backend=backend).viz["plot"].data_vars) == {
        "z[0]",
        "z[1]",
        "z[2]",
        "total",
    }
    tree["posterior"].attrs["discrete_variables"] = '["z"]'
    for plot in PLOTS:
        if plot is not pmd.plot_coclustering:  # which is of one variable that is named
            assert not [p for p in plot(tree, backend=backend).viz["plot"].data_vars if p[0] != "z"]


@pytest.mark.parametrize(
    "given", ["state", ["quiet", "usual", "active"], {0: "quiet", 1: "usual", 2: "active"}], ids=str
)
def test_values_have_names(rng, backend, given):
    z = rng.integers(0, 3, (2, 40, 5))
    coords = {"state": ["quiet", "usual", "active"]}
    tree = tree_of(z, coords, {"mu": ["state"]}, mu=rng.normal(size=(2, 40, 3)))
    for plot in (pmd.plot_probabilities, pmd.plot_chains):
        assert legend(plot(tree, "z", value_names=given, backend=backend)) == ["active", "usual", "quiet"]
    tree = tree_of(
        rng.integers(0, 3, (2, 10, 6, 8)), coords, {"mu": ["state"]}, mu=rng.normal(size=(2, 10, 3))
    )
    drawn = pmd.plot_probabilities(tree, "z", value_names=given, backend=backend)
    assert title(drawn, "z = usual") == "P(z = usual)"


def test_some_of_many_values_have_names(rng, backend):
    drawn = pmd.plot_probabilities(
        tree_of(rng.integers(0, 12, (2, 40, 5))), "z", value_names={0: "none", 2: "two"}, backend=backend
    )
    assert tick_labels(drawn, axis="y")[:4] == ["none", "1", "two", "3"]


@pytest.mark.parametrize("plot", [pmd.plot_probabilities, pmd.plot_chains], ids=lambda plot: plot.__name__)
def test_every_value_needs_a_name(rng, plot):
    tree = tree_of(rng.integers(0, 2, (2, 40, 5)))
    with pytest.raises(ValueError, match=r"value_names has 1 name, and 'z' has 2 values.* no name for 1"):
        plot(tree, "z", value_names=["a"])


def test_names_of_values_that_do_not_exist(rng):
    tree = tree_of(rng.integers(0, 3, (2, 40, 5)))
    with pytest.raises(ValueError, match=r"value_names='state' is no dimension .* those are 'z_dim_0'"):
        pmd.plot_probabilities(tree, "z", value_names="state")


def test_many_values_and_many_elements_are_a_heat_map(rng, backend):
    wide = rng.poisson(20, (2, 40, 5))
    drawn = pmd.plot_probabilities(tree_of(wide), "z", backend=backend)
    values = np.unique(wide)
    np.testing.assert_allclose(cells(drawn.get_viz("image", "z")), shares(wide, values).T, atol=1e-12)
    many = rng.integers(0, 2, (1, 4, 701))
    drawn = pmd.plot_probabilities(tree_of(many), "z", backend=backend)
    np.testing.assert_allclose(cells(drawn.get_viz("image", "z")), shares(many, [0, 1]).T, atol=1e-12)
    assert len(tick_labels(drawn)) < 30


def test_a_matrix_is_drawn_as_one(rng, backend):
    z = rng.integers(0, 2, (2, 20, 6, 8))
    drawn = pmd.plot_probabilities(tree_of(z), "z", backend=backend)
    np.testing.assert_allclose(cells(drawn.get_viz("image", "z = 1")), z.mean(axis=(0, 1)), atol=1e-12)
    assert title(drawn, "z = 1").startswith("P(z = 1)")
    three = rng.integers(0, 3, (2, 20, 6, 8))
    drawn = pmd.plot_probabilities(tree_of(three), "z", backend=backend)
    for k in range(3):
        found = cells(drawn.get_viz("image", f"z = {k}"))
        np.testing.assert_allclose(found, (three == k).mean(axis=(0, 1)), atol=1e-12)


@pytest.mark.parametrize("given", ["name", "array", "several"])
def test_data_lie_below_the_bars(rng, backend, given):
    z, y = rng.integers(0, 2, (2, 20, 5)), rng.normal(size=5)
    data = {"name": "y", "array": y, "several": np.stack([y, y + 1], axis=1)}[given]
    drawn = pmd.plot_probabilities(tree_of(z, observed=y), "z", data=data, backend=backend)
    dots = places(drawn.get_viz("data"))
    expected = np.stack([np.arange(5), y], axis=1)
    if given == "several":
        expected = np.stack([np.repeat(np.arange(5), 2), np.stack([y, y + 1], axis=1).ravel()], axis=1)
    np.testing.assert_allclose(dots, expected)


def test_data_that_do_not_fit_are_refused(rng):
    tree = tree_of(rng.integers(0, 2, (2, 20, 5)), k=rng.integers(0, 2, (2, 20)), observed=np.zeros(5))
    with pytest.raises(ValueError, match=r"data has the shape \(4,\), and 'z' has the shape \(5,\)"):
        pmd.plot_probabilities(tree, "z", data=np.zeros(4))
    with pytest.raises(ValueError, match=r"data='x' is no variable .*: 'y'"):
        pmd.plot_probabilities(tree, "z", data="x")
    with pytest.raises(ValueError, match="data belongs to the elements of one variable"):
        pmd.plot_probabilities(tree, data=np.zeros(5))


@pytest.mark.parametrize("chains", [1, 4])
def test_inclusion_has_a_dot_for_each_chain_and_its_error(rng, backend, chains):
    z = (rng.random((chains, 200, 3)) < [0.1, 0.5, 0.9]).astype(int)
    tree = tree_of(z, x=rng.integers(0, 5, (chains, 200)))
    drawn = pmd.plot_inclusion(tree, backend=backend)  # x is no indicator
    np.testing.assert_allclose(places(drawn.get_viz("mean", "z"))[:, 1], z.mean(axis=(0, 1)), atol=1e-12)
    ends = places(drawn.get_viz("mcse", "z"))[:, 1].reshape(3, 3)
    error = pmd.summary(tree, "z")["mcse P(1)"].values
    np.testing.assert_allclose(ends[:, 1] - ends[:, 0], 4 * error, rtol=1e-6)
    if chains > 1:
        for c in range(chains):
            dots = places(drawn.get_viz("chains", "z", chain=c))
            np.testing.assert_allclose(dots[:, 1], z[c].mean(axis=0), atol=1e-12)
    assert set(drawn.viz["plot"].data_vars) == {"z"}


def test_the_error_of_summed_out_probabilities_is_that_of_the_means_of_chains(rng, backend):
    p = rng.uniform(0.2, 0.8, (4, 3))
    tree = tree_of(rng.integers(0, 2, (4, 30, 3)), probabilities=np.stack([1 - p, p], axis=-1))
    drawn = pmd.plot_inclusion(tree, "z", backend=backend)
    np.testing.assert_allclose(places(drawn.get_viz("mean", "z"))[:, 1], p.mean(axis=0))
    ends = places(drawn.get_viz("mcse", "z"))[:, 1].reshape(3, 3)
    np.testing.assert_allclose(ends[:, 1] - ends[:, 0], 4 * p.std(axis=0, ddof=1) / 2)
    assert "summed out" in title(drawn)


def test_inclusion_is_for_indicators():
    tree = tree_of(np.arange(40).reshape(2, 20) % 3)
    with pytest.raises(ValueError, match=r"'z' is not of the values 0 and 1 alone \('z' goes from 0 to 2\)"):
        pmd.plot_inclusion(tree, "z")
    with pytest.raises(ValueError, match="no variable with the values 0 and 1"):
        pmd.plot_inclusion(tree)


def test_coclustering_is_ordered_by_clusters(rng, backend):
    cluster = rng.permutation(np.repeat([0, 1, 2], [7, 5, 3]))
    z = np.array([[rng.permutation(3)[cluster] for _ in range(50)] for _ in range(2)])
    z[0, :25, 0] = z[0, :25, np.flatnonzero(cluster != cluster[0])[0]].T  # one site is uncertain
    drawn = pmd.plot_coclustering(tree_of(z), "z", backend=backend)
    found = cells(drawn.get_viz("image", "z"))
    order = drawn.data["z site"].values
    np.testing.assert_array_equal(np.sort(order), np.arange(15))
    np.testing.assert_allclose(found, pmd.coclustering(tree_of(z), "z").values[np.ix_(order, order)])
    np.testing.assert_array_equal(
        cluster[order] != np.roll(cluster[order], 1), np.isin(range(15), [0, 7, 12])
    )
    last = {0: 6, 1: 11, 2: 14}[[7, 5, 3].index((cluster == cluster[0]).sum())]
    assert order[last] == 0, "the site that is least sure is not the last one of its cluster"
    assert tick_labels(drawn) == [str(i) for i in order]
    assert title(drawn).endswith("15 sites, 3 clusters")
    borders = places(drawn.get_viz("borders", "z"))
    assert {6.5, 11.5} <= set(borders[:, 0])


def test_many_sites_are_named_by_their_clusters(rng, backend):
    cluster = np.repeat([0, 1, 2], [40, 9, 1])
    z = np.broadcast_to(rng.permutation(cluster), (2, 10, 50))
    drawn = pmd.plot_coclustering(tree_of(z.copy()), "z", backend=backend)
    assert tick_labels(drawn) == ["0", "1", "2"]
    assert tick_labels(drawn, axis="y") == ["0 (40)", "1 (9)", "2 (1)"]


@pytest.mark.parametrize("chains", [1, 3])
def test_counts_have_the_mass_of_each_chain(rng, backend, chains):
    z = rng.poisson(4, (chains, 60))
    drawn = pmd.plot_counts(tree_of(z), "z", backend=backend)
    values = np.arange(z.min(), z.max() + 1)
    for c in range(chains):
        line = places(drawn.get_viz("lines", "z", chain=c))
        np.testing.assert_allclose(line[:, 1], [(z[c] == v).mean() for v in values], atol=1e-12)
    np.testing.assert_allclose(heights(drawn.get_viz("bars", "z"))[0], shares(z, values)[0], atol=1e-12)
    assert tick_labels(drawn) == [str(v) for v in values]
    assert legend(drawn) == ["all chains", *(f"chain {c}" for c in range(chains))]


def test_counts_of_a_wide_range_are_drawn_in_bins(rng, backend):
    z = rng.integers(300, 551, (2, 100, 2))
    z[0, 0] = [300, 300]
    z[0, 1] = [550, 550]
    drawn = pmd.plot_counts(tree_of(z), "z", backend=backend)
    height, _ = heights(drawn.get_viz("bars", "z[1]"))
    expected = [((z[..., 1] >= low) & (z[..., 1] < low + 3)).mean() for low in range(300, 551, 3)]
    np.testing.assert_allclose(height, expected, atol=1e-12)


def test_counts_of_many_elements_are_a_heat_map(rng, backend):
    z = rng.poisson(3, (2, 40, 20))
    drawn = pmd.plot_counts(tree_of(z), "z", backend=backend)
    values = np.arange(z.min(), z.max() + 1)
    np.testing.assert_allclose(cells(drawn.get_viz("image", "z")), shares(z, values).T, atol=1e-12)


def test_of_a_partition_the_number_of_clusters_is_drawn(rng, backend):
    z = rng.integers(0, 4, (2, 60, 5)) % rng.integers(1, 5, (2, 60, 1))
    tree = tree_of(z, other=rng.poisson(2, (2, 60)))
    tree["posterior"].attrs[PARTITIONS_ATTRIBUTE] = '["z"]'
    drawn = pmd.plot_counts(tree, ["z", "other"], backend=backend)
    number = np.array([[len(set(one)) for one in chain] for chain in z])[..., None]
    values = np.arange(number.min(), number.max() + 1)
    height, _ = heights(drawn.get_viz("bars", "clusters of z"))
    np.testing.assert_allclose(height, shares(number, values)[0], atol=1e-12)


def test_moves_tell_who_never_moved(rng, backend):
    z = rng.integers(0, 2, (2, 100, 4))
    z[1, :, 1] = 0  # stuck in one chain
    z[:, :, 3] = 1  # constant
    p = np.full((2, 4, 2), 0.5)
    p[:, 3] = [1e-9, 1 - 1e-9]
    drawn = pmd.plot_moves(tree_of(z), "z", backend=backend)
    assert title(drawn).endswith("2 of 4 never moved in some chain: 1, 3")
    never = places(drawn.get_viz("never", "z"))
    assert sorted(np.round(never[:, 0]).tolist()) == [1, 3, 3]
    assert not never[:, 1].any()
    moved = places(drawn.get_viz("moved", "z"))
    expected = (z[:, 1:] != z[:, :-1]).mean(axis=1)
    np.testing.assert_allclose(np.sort(moved[:, 1]), np.sort(expected[expected > 0]))
    independent = places(drawn.get_viz("expected", "z"))[:, 1]
    np.testing.assert_allclose(independent, 1 - (shares(z, [0, 1]) ** 2).sum(axis=1), atol=1e-12)
    known = pmd.plot_moves(tree_of(z, probabilities=p), "z", backend=backend)
    assert title(known).endswith("1 of 4 never moved in some chain: 1")
    assert sorted(np.round(places(known.get_viz("still", "z"))[:, 0]).tolist()) == [3, 3]
    assert legend(known)[-2:] == ["never moved,\nas expected", "never moved"]
    # of what is sampled, the conditionals at the last draw say so
    tree = tree_of(z)
    leaving = xr.DataArray(p[..., 0], dims=["chain", "z_dim_0"], attrs={"joint": 1})
    tree["conditionals"] = xr.DataTree(xr.Dataset({"z": leaving}))
    known = pmd.plot_moves(tree, "z", backend=backend)
    assert title(known).endswith("1 of 4 never moved in some chain: 1")


LABEL_ORDERS = {
    "between": np.broadcast_to([[[0, 1, 2]], [[2, 0, 1]]], (2, 400, 3)),
    "within": np.where(
        (np.arange(400) // 7 % 2)[:, None], [2, 0, 1], np.broadcast_to([0, 1, 2], (2, 400, 3))
    ),
}


@pytest.mark.parametrize("where", LABEL_ORDERS)
def test_pictures_say_that_labels_switch(rng, backend, where):
    """Until they are relabelled; the names of a dimension fit those only that are ordered by a parameter."""
    truth = np.arange(12) % 3
    z = np.where(rng.random((2, 400, 12)) < 0.05, rng.integers(0, 3, (2, 400, 12)), truth)
    mu = np.take_along_axis(
        np.arange(3.0) + 0.1 * rng.normal(size=(2, 400, 3)), np.argsort(LABEL_ORDERS[where], axis=2), axis=2
    )
    regimes = ["low", "mid", "high"]
    switched = tree_of(
        np.take_along_axis(LABEL_ORDERS[where], z, axis=2), {"regime": regimes}, {"mu": ["regime"]}, mu=mu
    )
    trees = {
        f"\nlabels switch {where} chains: pmd.relabel first": switched,
        "\nthe names need not fit: pmd.relabel(order_by=...)": pmd.relabel(switched, "z", dims="regime"),
        "": pmd.relabel(switched, "z", dims="regime", order_by="mu"),
    }
    assert "\nlabels switch" in title(pmd.plot_moves(switched, "z", backend=backend))
    for note, tree in trees.items():
        drawn = title(pmd.plot_probabilities(tree, "z", value_names="regime", backend=backend))
        assert drawn.endswith(f"draws){note}")


@pytest.mark.parametrize("shape", [(5, 10), (800,)], ids=["matrix", "heat map"])
def test_images_of_labels_say_that_these_switch(rng, backend, shape):
    truth = np.arange(np.prod(shape)).reshape(shape) % 3
    z = np.stack([np.broadcast_to(k, (100, *shape)) for k in (truth, (truth + 1) % 3)])
    drawn = pmd.plot_probabilities(tree_of(z), "z", backend=backend)
    if len(shape) == 1:
        text = title(drawn)
    else:
        figure = drawn.get_viz("figure")
        text = figure.get_suptitle() if backend == "matplotlib" else figure.layout.title.text
    assert "labels switch between chains" in text


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)], ids=["scalar", "vector", "matrix"])
def test_chains_are_the_draws(rng, backend, shape):
    z = rng.choice([2, 5, 9], size=(2, 30, *shape))
    drawn = pmd.plot_chains(tree_of(z), "z", backend=backend)
    codes = np.searchsorted([2, 5, 9], z.reshape(2, 30, -1))
    np.testing.assert_array_equal(cells(drawn.get_viz("image", "z")), np.concatenate(codes).T)
    assert legend(drawn) == ["9", "5", "2"]
    assert tick_labels(drawn) == ["chain 0", "chain 1"]
    wide = rng.poisson(30, (2, 30, *shape))
    drawn = pmd.plot_chains(tree_of(wide), "z", backend=backend)
    np.testing.assert_array_equal(
        cells(drawn.get_viz("image", "z")), np.concatenate(wide.reshape(2, 30, -1)).T
    )


def test_images_of_chains_are_thinned_and_say_so(rng, backend):
    z = rng.integers(0, 2, (4, 901, 1001))
    drawn = pmd.plot_chains(tree_of(z), "z", backend=backend)
    expected = np.concatenate(z[:, ::5, ::3]).T
    np.testing.assert_array_equal(cells(drawn.get_viz("image", "z")), expected)
    texts = [drawn.get_viz(v, "z") for v in ("xlabel", "ylabel")]
    if backend == "matplotlib":
        assert [t.get_text() for t in texts] == [
            "draws 0 to 900 of each chain, every 5th",
            "element of z, every 3rd",
        ]


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.__name__)
def test_what_cannot_be_drawn_is_refused(rng, plot):
    tree = tree_of(rng.integers(0, 2, (2, 20, 3)), mu=rng.normal(size=(2, 20)))
    with pytest.raises(ValueError, match="'nu'"):
        plot(tree, "nu")
    with pytest.raises(ValueError, match=r"'mu' is n.*float64"):
        plot(tree, "mu")
    with pytest.raises(ValueError, match="backend must be one of 'matplotlib', 'plotly', got 'bokeh'"):
        plot(tree, "z", backend="bokeh")
    with pytest.raises(ValueError, match="colour"):
        plot(tree, "z", visuals={"colour": {}})
    with pytest.raises(ValueError, match="coords names 'site', and the posterior has the dimensions"):
        plot(tree, "z", coords={"site": 0})
    with pytest.raises(
        ValueError, match=r"coords\['chain'\] has '9', which the posterior does not have; it has"
    ):
        plot(tree, "z", coords={"chain": [0, 9]})
    with pytest.raises(ValueError, match=r"it has 0 ... 29 \(30 labels\)"):
        plot(tree_of(np.tile(np.arange(30), (2, 20, 1))), "z", coords={"z_dim_0": [99]})
    with pytest.raises(TypeError, match="idata must be a DataTree"):
        plot(np.zeros((2, 20)), "z")


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.__name__)
def test_visuals_are_turned_off_and_changed(rng, backend, plot):
    tree = tree_of(rng.integers(0, 2, (2, 20, 3)))
    drawn = plot(tree, "z", backend=backend, visuals={"title": False, "xlabel": {"text": "here"}})
    assert "title" not in drawn.viz.children
    assert "xlabel" in drawn.viz.children
    assert drawn.backend == backend


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.__name__)
def test_figures_can_be_drawn_and_have_the_size_that_is_asked_for(rng, plot):
    tree = tree_of(rng.integers(0, 2, (2, 20, 30)))
    drawn = plot(tree, "z", backend="matplotlib", figure_kwargs={"figsize": (5, 4)})
    figure = drawn.get_viz("figure")
    figure.canvas.draw()
    assert figure.get_size_inches().tolist() == [5, 4]
    plt.close("all")


def test_labels_are_thinned_to_what_there_is_room_for():
    from pymc_discrete.plots.figure import evenly_spaced, fitting_labels

    years = [str(y) for y in range(1851, 1962)]
    assert [years[i] for i in evenly_spaced(years, 12)] == [str(y) for y in range(1860, 1962, 10)]
    assert evenly_spaced(["a", "b", "c"], 3) == [0, 1, 2]
    assert fitting_labels(["a", "b"], 75) == ([0, 1], False)
    places, upright = fitting_labels([f"Ardennes {i}" for i in range(500)], 75)
    assert upright
    assert len(places) <= 64
