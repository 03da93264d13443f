"""A progress bar that looks like PyMC's."""

import io
from contextlib import ExitStack
from typing import Any, Self

import numpy as np
from pymc.progress_bar import CustomProgress, default_progress_theme
from rich.console import Console
from rich.live import Live
from rich.progress import (
    BarColumn,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress
from rich.text import Text

from pymc_discrete.runtime.checks import suggested
from pymc_discrete.runtime.compiling import being_compiled
from pymc_discrete.runtime.waiting import watched

# The values besides True and False that `pm.sample` accepts for progressbar=. In this package, which has one
# bar, all of them show that bar.
PROGRESS_BARS = ("combined", "split", "combined+stats", "stats+combined", "split+stats", "stats+split")
# The first TEXT_COLUMNS columns of the terminal are kept for the text. The bar takes at most BAR_COLUMNS of
# the other columns, and is left out where there are none.
TEXT_COLUMNS, BAR_COLUMNS = 90, 40
# the HTML in which a notebook shows the bar
HTML = '<pre style="white-space: pre; overflow-x: auto; line-height: normal">{code}</pre>'


def check_bar(progressbar: Any) -> None:
    """Raise a ValueError unless `progressbar` is a value that `pm.sample` accepts for this argument."""
    if isinstance(progressbar, bool | np.bool_) or (
        isinstance(progressbar, str) and progressbar in PROGRESS_BARS
    ):
        return
    raise ValueError(
        f"progressbar must be True, False, or, as in pm.sample, one of "
        f"{', '.join(map(repr, PROGRESS_BARS))}, got {progressbar!r}.{suggested(progressbar, PROGRESS_BARS)}"
    )


class Doing(ProgressColumn):
    """A column with what is being compiled and for how many seconds, or else with the text of the task."""

    def render(self, task: Task) -> Text:
        return Text(being_compiled() or task.fields["text"], no_wrap=True, overflow="ellipsis")


def on_paper(width: int) -> Console:
    """A console that keeps its text and shows it nowhere."""
    return Console(
        file=io.StringIO(), force_jupyter=False, record=True, width=width, theme=default_progress_theme
    )


class InNotebook(Live):
    """Shows a bar in a notebook: one output, which is replaced at each change and saved in its last form.

    Rich shows a bar as a widget, which needs another package and is empty in a saved notebook.

    Parameters
    ----------
    bar : the bar, whose console is a result of `on_paper`
    """

    def __init__(self, bar: RichProgress):
        super().__init__(
            console=bar.console,
            refresh_per_second=bar.live.refresh_per_second,
            redirect_stdout=False,
            redirect_stderr=False,
            get_renderable=bar.get_renderable,
        )
        self._display: Any = None  # the handle by which the output is replaced
        self._text = ""

    def refresh(self) -> None:
        """Show the bar in its present form, unless the output shows it already."""
        with self._lock:
            paper = on_paper(self.console.width)
            paper.print(self.get_renderable())
            text = paper.export_text(clear=False)
            if text == self._text:
                return
            self._text = text
            html = paper.export_html(inline_styles=True, code_format=HTML)
            output = {"text/plain": text.rstrip(), "text/html": html}
            if self._display is None:
                from IPython.display import display

                self._display = display(output, raw=True, display_id=True)
            else:
                self._display.update(output, raw=True)


class Progress:
    """A bar with the draws done, draws per second, divergences and acceptance of all chains.

    Where the bar is not shown, or goes to a file, the log says now and then how far the chains are.

    Parameters
    ----------
    total : draws of a chain, tuning included
    chains : number of chains
    shown : whether to show the bar
    unit : the word for what `chains` counts
    work : the word for what `total` counts
    """

    def __init__(self, total: int, chains: int, shown: bool, unit: str = "chain", work: str = "draws"):
        self.total, self.chains, self.unit, self.work, self.divergences = total, chains, unit, work, 0
        console = Console(theme=default_progress_theme)
        in_notebook = console.is_jupyter
        if in_notebook:
            console = on_paper(console.width)
        self._bar = CustomProgress(
            TextColumn("{task.description}"),
            *(
                [BarColumn(min(BAR_COLUMNS, console.width - TEXT_COLUMNS))]
                if console.width > TEXT_COLUMNS
                else []
            ),
            TaskProgressColumn(),
            Doing(),
            TimeRemainingColumn(),
            TextColumn("/"),
            TimeElapsedColumn(),
            console=console,
            disable=not shown,
        )
        if in_notebook:
            self._bar.live = InNotebook(self._bar)
        self._seen = shown and (console.is_terminal or in_notebook)
        self._watched = ExitStack()

    def __enter__(self) -> Self:
        self._bar.start()
        self._task = self._bar.add_task(
            f"{self.chains} {self.unit}{'s' * (self.chains > 1)}",
            total=self.total,
            text="preparing the model",
        )
        self._watched.enter_context(watched(None if self._seen else self._line))
        return self

    def __exit__(self, *error: Any) -> None:
        self._watched.close()
        self._bar.stop()

    def _line(self) -> str:
        """The line of the log that says how far the run is."""
        task = self._bar.tasks[0]
        done = f"{task.completed:,.0f} of {self.total:,} {self.work}"
        return f"{done} of {task.description}, {task.fields['text']}"

    def reach(self, done: float, text: str) -> None:
        """Show that `done` of the `total` steps are done, with a text."""
        self._bar.update(self._task, completed=done, text=text, refresh=True)

    def resumed(self, draws: int) -> None:
        """Show that `draws` of every chain were read from a checkpoint and are not sampled again."""
        self._bar.update(self._task, advance=draws, text="from the checkpoint", refresh=True)

    def advance(self, draws: int, seconds: float, stats: dict[str, Any], tuning: bool) -> None:
        """Show that every chain has made `draws` more draws in `seconds`, with the means of their `stats`."""
        if "diverging" in stats and not tuning:
            self.divergences += int(stats["diverging"].sum())
        text = [
            "tuning" if tuning else "sampling",
            f"{self.chains * draws / max(seconds, 1e-9):,.0f} draws/s",
        ]
        if "diverging" in stats:
            text.append(f"{self.divergences} divergences")
        for name in ("acceptance_rate", "accept"):
            if name in stats:
                text.append(f"accept {float(stats[name].mean()):.2f}")
                break
        self.show(draws, ", ".join(text))

    def show(self, steps: int, text: str) -> None:
        """Show that `steps` more of the `total` steps are done, with a text."""
        self._bar.update(self._task, advance=steps, text=text, refresh=True)
