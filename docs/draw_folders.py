"""Draw the folders of the package and the imports between them, and print what can be counted of its build.

python docs/draw_folders.py             # writes docs/images/folders.png, and prints the numbers
python docs/draw_folders.py CHECKOUT    # prints those of another checkout, to compare

The numbers: lines of each folder and of how many others it imports something; functions of a cyclomatic
complexity above 30; names at module level that stand in several modules; places that ask for the class of a
constraint.
"""

import ast
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch

ROOT = Path(__file__).parents[1]
COMPLEX = 30  # functions of a larger cyclomatic complexity are counted
CONSTRAINTS = r"isinstance\([^)]*\b(FixedSums|Permutations|LinearConstraint|Constraint)\b"
CORE, BESIDE, PURE = "#dbe9f6", "0.93", "#fde7cf"  # colours; PURE is of folders that know no PyMC


def files_of(package: Path) -> dict[Path, ast.Module]:
    """{file: its syntax tree}."""
    return {path: ast.parse(path.read_text()) for path in sorted(package.rglob("*.py"))}


def folder_of(path: Path, package: Path) -> str:
    """The folder in which a file is, "" for the files at the top."""
    parts = path.relative_to(package).parts
    return parts[0] if len(parts) > 1 else ""


def imports_of(tree: ast.Module) -> set[str]:
    """The folders of the package from which a file imports something."""
    modules = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    named = [module.split(".") for module in modules if module.startswith("pymc_discrete.")]
    return {parts[1] for parts in named if len(parts) > 2}


def imports_between(files: dict[Path, ast.Module], package: Path) -> Counter[tuple[str, str]]:
    """{(folder, another that it imports): how many of its files do}."""
    found: Counter[tuple[str, str]] = Counter()
    for path, tree in files.items():
        own = folder_of(path, package)
        found.update((own, other) for other in imports_of(tree) if other != own)
    return found


def lines_of(files: dict[Path, ast.Module], package: Path) -> Counter[str]:
    """{folder: number of lines}."""
    found: Counter[str] = Counter()
    for path in files:
        found[folder_of(path, package)] += len(path.read_text().splitlines())
    return found


def namesakes(files: dict[Path, ast.Module], constants: bool) -> dict[str, int]:
    """{name at module level: in how many modules it stands}, of constants or of functions and classes."""
    found: dict[str, set[Path]] = defaultdict(set)
    for path, tree in files.items():
        for node in tree.body:
            if constants and isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for name in (t.id for t in targets if isinstance(t, ast.Name) and t.id.isupper()):
                    found[name].add(path)
            elif isinstance(node, ast.FunctionDef | ast.ClassDef) and not (constants or node.name[0] == "_"):
                found[node.name].add(path)
    return {name: len(paths) for name, paths in sorted(found.items()) if len(paths) > 1}


def complexity(function: ast.AST) -> int:
    """One more than the places where a function branches: tests, loops, errors, comprehensions, `and`."""
    branches = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.IfExp, ast.comprehension, ast.Assert)
    nodes = [*ast.walk(function)]
    tests = sum(len(n.values) - 1 for n in nodes if isinstance(n, ast.BoolOp))
    ifs = sum(len(n.ifs) for n in nodes if isinstance(n, ast.comprehension))
    return 1 + tests + ifs + sum(isinstance(n, branches) for n in nodes)


def complex_functions(files: dict[Path, ast.Module], package: Path) -> dict[str, int]:
    """{function: complexity} of those above `COMPLEX`, functions within them included."""
    return {
        f"{path.relative_to(package)}:{node.name}": size
        for path, tree in files.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and (size := complexity(node)) > COMPLEX
    }


def classes_asked(files: dict[Path, ast.Module]) -> int:
    """How many places ask for the class of a constraint."""
    return sum(len(re.findall(CONSTRAINTS, path.read_text())) for path in files)


def report(package: Path) -> None:
    files = files_of(package)
    lines, between = lines_of(files, package), imports_between(files, package)
    total = sum(lines.values())
    print(f"{len(files)} files, {total} lines\n")
    print("| folder | lines | share | imports from |\n|---|---:|---:|---|")
    for folder, count in lines.most_common():
        others = ", ".join(sorted(b for a, b in between if a == folder and b in lines))
        print(f"| {folder or 'the top'} | {count} | {100 * count / total:.1f} % | {others} |")
    functions, constants = (namesakes(files, constants=c) for c in (False, True))
    print(f"\npairs of folders of which one imports the other: {len(between)}")
    print(f"functions and classes with namesakes: {len(functions)}; constants: {len(constants)}")
    print(f"places that ask for the class of a constraint: {classes_asked(files)}")
    large = complex_functions(files, package)
    which = ", ".join(f"{name} ({size})" for name, size in sorted(large.items(), key=lambda p: -p[1]))
    print(f"functions of a complexity above {COMPLEX}: {len(large)}{': ' if large else ''}{which}")


def draw(package: Path) -> None:
    """Boxes in the order in which folders may import, each with its lines, and an arc for every import."""
    sys.path.insert(0, str(ROOT))
    from tests.parts import PARTS as EXTRA
    from tests.test_import import LAYERS
    from tests.test_import import PURE as WITHOUT_PYMC

    files = files_of(package)
    lines, between = lines_of(files, package), imports_between(files, package)
    names = [name for name in [*LAYERS, *EXTRA] if name in lines]
    place = {name: -n - 0.8 * (name in EXTRA) for n, name in enumerate(names)}
    fig, ax = plt.subplots(figsize=(11, 11.5), layout="constrained")
    longest = max(lines.values())
    for name, y in place.items():
        colour = BESIDE if name in EXTRA else PURE if name in WITHOUT_PYMC else CORE
        box = FancyBboxPatch(
            (-1, y - 0.36), 2, 0.72, boxstyle="round,pad=0,rounding_size=0.1", fc=colour, ec="0.4"
        )
        ax.add_patch(box)
        ax.barh(y - 0.22, 1.8 * lines[name] / longest, 0.08, left=-0.9, color="0.35")
        ax.text(0, y + 0.07, name, ha="center", va="center", fontsize=12, weight="bold")
        ax.text(-1.1, y, f"{lines[name]:,} lines", ha="right", va="center", fontsize=9, color="0.35")
    for (importing, imported), count in between.items():
        if importing in place and imported in place:
            climbs = place[importing] > place[imported]
            style = {
                "arrowstyle": "-|>",
                "color": "red" if climbs else "0.55",
                "alpha": min(0.25 + 0.1 * count, 0.9),
            }
            bend = "arc3,rad=0.35" if not climbs else "arc3,rad=-0.35"
            ends = {"xy": (1.02, place[imported]), "xytext": (1.02, place[importing])}
            ax.annotate(
                "",
                **ends,
                arrowprops={**style, "connectionstyle": bend, "linewidth": 0.4 + 0.25 * min(count, 8)},
            )
    ax.set_xlim(-2.6, 3.6)
    ax.set_ylim(min(place.values()) - 0.6, 0.8)
    ax.axis("off")
    fig.savefig(ROOT / "docs" / "images" / "folders.png", dpi=110)


def main() -> None:
    package = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT) / "pymc_discrete"
    report(package)
    if len(sys.argv) == 1:
        draw(package)


if __name__ == "__main__":
    main()
