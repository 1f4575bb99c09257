"""Trains five small runs in three environments and makes the images of their report page.

    python benchmarks/report_page.py [FOLDER]

Runs that FOLDER has are not trained again. About three minutes on two cores. It needs chromium and chromedriver, as the
browser tests do. The images are docs/images/report-page-WIDTH-THEME.png, at most TALLEST pixels high.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "report"))

from browser import Browser  # noqa: E402

from rnd import cli  # noqa: E402

RUNS = (
    "CartPole-v1 --frames 60000 --seed 1",
    "CartPole-v1 --frames 60000 --seed 2",
    "MiniGrid-MultiRoom-N2-S4-v0 --frames 60000",
    "rnd/DeepSea-12 --frames 150000",
    "rnd/DeepSea-12 --frames 150000 --bonus none",
)
WIDTHS = (1400, 400)
TALLEST = 5000
"""Pixels of a page that are shown."""


def rnd(*words: str) -> None:
    """One command, as in a shell."""
    try:
        cli.main([*words])
    except SystemExit as end:
        if end.code:
            raise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", help="where the runs are kept; default: nowhere")
    kept = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(kept or folder) / "runs"
        for number, run in enumerate(RUNS, 1):
            if not (runs / f"run-{number}").exists():
                flags = ("--out", str(runs), "--name", f"run-{number}", "--writers", "none", "--device", "cpu")
                rnd("train", *run.split(), *flags)
        rnd("report", str(runs), "--out", f"{folder}/report.html")
        for width in WIDTHS:
            for theme in ("light", "dark"):
                photograph(Path(folder), width, theme)


def photograph(folder: Path, width: int, theme: str) -> None:
    """Open the page in a window of this width and write its image."""
    window = Browser(width, TALLEST, dark=theme == "dark")
    try:
        window.open(folder / "report.html")
        height = window.run("document.body.scrollHeight")
        window.screenshot(folder / "window.png")
    finally:
        window.close()
    save(
        Image.open(folder / "window.png").crop((0, 0, width, min(height, TALLEST))), f"report-page-{width}-{theme}.png"
    )


def save(screenshot: Image.Image, name: str) -> None:
    """The image with a palette: a third of the size. MAXCOVERAGE keeps colours that few pixels have."""
    file, kind = io.BytesIO(), Image.Quantize.MAXCOVERAGE
    image = screenshot.convert("RGB").quantize(256, kind, dither=Image.Dither.NONE)
    image.save(file, "PNG", optimize=True)
    (ROOT / "docs" / "images" / name).write_bytes(file.getvalue())
    print(f"  docs/images/{name} ({len(file.getvalue()) // 1000} kB)")


if __name__ == "__main__":
    main()
