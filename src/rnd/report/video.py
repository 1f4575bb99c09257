"""The video: the game beside its bonus curve.

The curve is drawn once bright and once dim; each frame shows the bright one up to the current step. The format is H.264
with 4:2:0 colours and the index at the front, which every browser plays.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np

from rnd.foundation.errors import RunError
from rnd.report.play import PlayedStep

WIDTH, HEIGHT = 1152, 480
GAME = (16, 44, 384, 420)
"""x, y, width, height of the game's image."""
CURVE = (472, 92, 656, 308)
"""x, y, width, height of the plot area."""
BACKGROUND, INK, DIM, ACCENT, SPIKE = (18, 22, 30), (232, 236, 242), (70, 78, 92), (255, 176, 59), (255, 107, 107)


class Overlay:
    """Everything in the image except the game."""

    def __init__(self, title: str, bonus: np.ndarray, spikes: list[int], *, rooms: bool = False):
        from matplotlib import font_manager
        from PIL import ImageFont

        self.bonus, self.spikes, self.rooms = bonus, spikes, rooms
        known = bonus[np.isfinite(bonus)]
        self.drawn = len(known) > 0  # not where the agent has no bonus
        self.top = max(float(known.max(initial=0.0)), 1e-12) * 1.08
        font = font_manager.findfont("DejaVu Sans")  # it is part of matplotlib
        self.small, self.large = ImageFont.truetype(font, 13), ImageFont.truetype(font, 17)
        self._dim, self._bright = self._plot(title, DIM), self._plot(title, ACCENT)

    def point(self, index: int, value: float) -> tuple[float, float]:
        """Pixel position of a bonus value at a step."""
        x, y, width, height = CURVE
        return x + (width - 1) * index / max(len(self.bonus) - 1, 1), y + (height - 1) * (1 - value / self.top)

    def frame(self, index: int, step: PlayedStep, recent: str) -> np.ndarray:
        """The frame of one step; `recent` names the last spike."""
        from PIL import Image, ImageDraw

        now = round(self.point(index, 0.0)[0])
        canvas = self._dim.copy()
        canvas[:, : now + 1] = self._bright[:, : now + 1]
        assert step.screen is not None
        _paste(canvas, step.screen)
        image = Image.fromarray(canvas)
        pen = ImageDraw.Draw(image)
        x, y, width, height = CURVE
        room = f"   room {step.room % 256}" if self.rooms and step.room >= 0 else ""
        lives = f"   lives {step.lives}" if step.lives else ""
        pen.text((x, 58), f"step {step.step:,}   return {step.score:g}{room}{lives}", fill=INK, font=self.small)
        if self.drawn:
            pen.line([(now, y), (now, y + height)], fill=INK, width=1)
            bonus = "–" if step.bonus is None else f"{step.bonus:.4g}"
            pen.text((x + width, 58), f"bonus {bonus}", fill=ACCENT, font=self.small, anchor="ra")
        pen.text((x, y + height + 38), recent, fill=SPIKE, font=self.small)
        return np.asarray(image)

    def _plot(self, title: str, colour: tuple[int, int, int]) -> np.ndarray:
        from PIL import Image, ImageDraw

        image = Image.new("RGB", (WIDTH, HEIGHT), BACKGROUND)
        pen = ImageDraw.Draw(image)
        x, y, width, height = CURVE
        pen.text((16, 14), title, fill=INK, font=self.large)
        if not self.drawn:
            return np.asarray(image).copy()
        for share in (0.0, 0.5, 1.0):
            level = y + (height - 1) * (1 - share / 1.08)
            pen.line([(x, level), (x + width, level)], fill=(44, 50, 62))
            pen.text((x - 8, level), f"{share * self.top / 1.08:.3g}", fill=DIM, font=self.small, anchor="rm")
        pen.text((x, y + height + 12), "0", fill=DIM, font=self.small, anchor="ma")
        end = f"{len(self.bonus):,} steps"
        pen.text((x + width, y + height + 12), end, fill=DIM, font=self.small, anchor="ra")
        known = [(i, value) for i, value in enumerate(self.bonus.tolist()) if np.isfinite(value)]
        pen.line([self.point(i, value) for i, value in known], fill=colour, width=2)
        for number, index in enumerate(self.spikes, 1):
            px, py = self.point(index, float(self.bonus[index]))
            fill = SPIKE if colour == ACCENT else DIM
            pen.ellipse([px - 3, py - 3, px + 3, py + 3], fill=fill)
            pen.text((px, max(py - 6, y - 4)), str(number), fill=fill, font=self.small, anchor="mb")
        return np.asarray(image).copy()


class Mp4:
    """Writes frames through ffmpeg to a private file: `with Mp4(path, fps) as video: video.write(frame)`."""

    def __init__(self, path: Path, fps: int):
        import imageio_ffmpeg

        source = f"-y -loglevel error -f rawvideo -pix_fmt rgb24 -s {WIDTH}x{HEIGHT} -r {fps} -i -"
        target = "-an -c:v libx264 -preset veryfast -crf 23 -pix_fmt yuv420p -movflags +faststart"
        command = [imageio_ffmpeg.get_ffmpeg_exe(), *source.split(), *target.split(), str(path)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)

    def __enter__(self) -> Mp4:
        return self

    def write(self, frame: np.ndarray) -> None:
        assert self._process.stdin is not None and frame.shape == (HEIGHT, WIDTH, 3)
        try:
            self._process.stdin.write(frame.tobytes())
        except BrokenPipeError:
            raise RunError(f"ffmpeg stopped: {self._errors()}") from None

    def __exit__(self, kind: object, *_: object) -> None:
        assert self._process.stdin is not None
        if not self._process.stdin.closed:
            self._process.stdin.close()
        errors, code = self._errors(), self._process.wait()
        if kind is None and code:
            raise RunError(f"ffmpeg could not write the video: {errors}")

    def _errors(self) -> str:
        assert self._process.stderr is not None
        return " ".join(self._process.stderr.read().decode(errors="replace").split()) or "no reason given"


def _paste(canvas: np.ndarray, image: np.ndarray) -> None:
    """Copy the game's image into its box, as large as possible; Atari's pixels stay sharp."""
    import cv2

    x, y, width, height = GAME
    rows, columns = image.shape[:2]
    factor = min(width / columns, height / rows)
    size = (max(1, int(columns * factor)), max(1, int(rows * factor)))
    way = cv2.INTER_NEAREST if factor >= 1 else cv2.INTER_AREA
    left, top = x + (width - size[0]) // 2, y + (height - size[1]) // 2
    canvas[top : top + size[1], left : left + size[0]] = cv2.resize(image, size, interpolation=way)
