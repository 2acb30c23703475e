"""Progress of a run on a terminal: one live line; nothing where no person watches."""

import time

from rich.console import Console
from rich.live import Live
from rich.text import Text

__all__ = ["Progress"]


class Progress:
    """Keep one line up to date: step, losses, entropy, images per second, time left.

    Args:
        total_steps: of the whole run.
        batch_size: images per step.
        first_step: where this process started.
    """

    def __init__(self, total_steps: int, batch_size: int, first_step: int):
        self.total, self.batch, self.first = total_steps, batch_size, first_step
        console = Console()
        self.live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        if self.live:
            self.live.start()
        self.started = time.perf_counter()
        self.show(f"step {first_step}/{total_steps}  compiling")

    def restart_clock(self, step: int) -> None:
        """Count speed from here on: compilation is over."""
        self.first, self.started = step, time.perf_counter()

    def update(self, step: int, metrics: dict[str, float]) -> None:
        """Draw the line of `step`."""
        seconds = max(time.perf_counter() - self.started, 1e-9)
        rate = max(step - self.first, 1) / seconds
        left = int((self.total - step) / rate)
        names = ("cross_entropy", "squared_error", "absolute_error", "contrast")
        losses = [name for name in names if name in metrics]
        parts = "".join(f"{name.replace('_', '-')} {metrics[name]:.3f}  " for name in losses)
        self.show(
            f"step {step}/{self.total}  loss {metrics['loss']:.3f}  "
            f"{parts}entropy {metrics['entropy']:.2f} nats  "
            f"{rate * self.batch:.0f} images/s  {left // 60}:{left % 60:02d} left"
        )

    def show(self, line: str) -> None:
        """Replace the line."""
        if self.live:
            self.live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)

    def say(self, text: str) -> None:
        """Print a line above the live one, or where there is none."""
        (self.live.console if self.live else Console(soft_wrap=True)).print(text, markup=False)

    def close(self) -> None:
        """Leave the last line standing."""
        if self.live:
            self.live.stop()
