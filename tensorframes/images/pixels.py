"""Programs on images: encoded files, or rows of Spark's image schema, as tensors of pixels, of one size if a size is given.

Knows TensorFlow; no Spark. The one law: an image is decoded, brought to its channels and resized on its own, by the same functions
whichever way it came, so that only one picture of a block is held at its full size.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import tensorflow as tf

from tensorframes.capture import as_program
from tensorframes.errors import ProgramError, ShapeError, verb
from tensorframes.feeds import Feed, feed
from tensorframes.programs import Program

Fit = Literal["stretch", "pad", "crop"]
Size = tuple[int, int] | None
FIELDS = ("height", "width", "nChannels", "data")  # of Spark's image schema, beside the origin


@verb
def decode(size: Size = None, *, channels: int = 3, fit: Fit = "stretch", method: str = "bilinear", antialias: bool = False) -> Program:
    """Make a program that decodes images: JPEG, PNG, BMP, WebP, and of GIF the first frame, told apart by their content.

    By shape: ``content: string[?]``, the bytes of files, → ``pixels: float32[?, height, width, channels]``, values from 0 to 255 in RGB
    order; without a size, images keep theirs and the output is ragged, ``uint8[?, ?, ?, channels]``.

    An image that cannot be decoded fails the job; `read_images` and `as_image` say what is wrong with it in its row.

    Args:
        size: (height, width), to which each image is brought as soon as it is decoded.
        channels: 1 (gray), 3 (RGB) or 4 (RGB and alpha), whatever the files have: gray becomes three equal colours, colours become gray
            by the weights of ``tf.image.rgb_to_grayscale``, alpha is dropped, or is 255 where a file has none.
        fit: "stretch" changes the aspect ratio; "pad" keeps it and fills up with zeros on both sides, as ``tf.image.resize_with_pad``;
            "crop" keeps it and cuts off what protrudes on both sides.
        method: how to interpolate, a name of ``tf.image.ResizeMethod``.
        antialias: whether to smooth before making smaller, as ``tf.image.resize`` says.

    Raises:
        ShapeError: the size is no pair of positive numbers, or the channels are none of 1, 3 and 4.
        ProgramError: there is no such fit or method.

    Example:
        >>> from tensorframes import images
        >>> images.decode((224, 224))
        Program(content: string[?]) -> (pixels: float32[?, 224, 224, 3])
    """
    sizing = Sizing.of(size, fit, method, antialias)
    _check_channels(channels)

    def decode_one(content: tf.Tensor) -> tf.Tensor:
        return finish(decoded(content), channels, sizing)

    def pixels(content: tf.Tensor) -> Any:
        return {"pixels": _each(decode_one, content, channels, sizing)}

    return as_program(pixels, None, signature={"content": tf.TensorSpec([None], tf.string)})


@verb
def to_tensor(size: Size = None, *, channels: int = 3, fit: Fit = "stretch", method: str = "bilinear", antialias: bool = False) -> Program:
    """Make a program that takes rows of Spark's image schema, as `read_images` and ``spark.read.format("image")`` give them.

    By shape: ``height, width, nChannels: int32[?]``, ``data: string[?]`` (rows of pixels in BGR order, from the top) → as `decode`, in
    RGB order. The inputs are fields of one column: ``feed_dict=images.feeds("image")``.

    Args:
        size: as for `decode`.
        channels: as for `decode`.
        fit: as for `decode`.
        method: as for `decode`.
        antialias: as for `decode`.

    Raises:
        ShapeError: as `decode`.
        ProgramError: as `decode`.

    Example:
        >>> from tensorframes import images
        >>> print(images.to_tensor((32, 32), channels=1).outputs["pixels"])
        float32[?, 32, 32, 1]
    """
    sizing = Sizing.of(size, fit, method, antialias)
    _check_channels(channels)

    def read_one(image: tuple[tf.Tensor, ...]) -> tf.Tensor:
        height, width, held, data = image
        no_image = "the row holds no image, as readers of Spark say by a size of -1: filter such rows out"
        with tf.control_dependencies([tf.debugging.assert_non_negative(tf.stack([height, width, held]), no_image)]):
            data = tf.identity(data)
        pixels = tf.reshape(tf.io.decode_raw(data, tf.uint8), tf.stack([height, width, held]))
        if channels == 1:  # the weights of the colours differ
            return finish(tf.cond(held < 3, lambda: pixels, lambda: _turned(pixels)), channels, sizing)
        return _turned(finish(pixels, channels, sizing))  # at the end, when there are few

    def pixels(height: tf.Tensor, width: tf.Tensor, nChannels: tf.Tensor, data: tf.Tensor) -> Any:  # noqa: N803  (Spark's name)
        return {"pixels": _each(read_one, (height, width, nChannels, data), channels, sizing)}

    signature = {name: tf.TensorSpec([None], tf.string if name == "data" else tf.int32) for name in FIELDS}
    return as_program(pixels, None, signature=signature)


@verb
def resize(size: tuple[int, int], *, channels: int = 3, fit: Fit = "stretch", method: str = "bilinear", antialias: bool = False) -> Program:
    """Make a program that brings images of any sizes to one.

    By shape: ``pixels: float32[?, ?, ?, channels]``, ragged, → ``resized: float32[?, height, width, channels]``. Where the images are
    decoded by the same program, ``decode(size)`` and ``to_tensor(size)`` do both, with one picture at a time in memory.

    Args:
        size: (height, width).
        channels: those of the images.
        fit: as for `decode`.
        method: as for `decode`.
        antialias: as for `decode`.

    Raises:
        ShapeError: as `decode`.
        ProgramError: as `decode`.

    Example:
        >>> import tensorframes as tfs
        >>> from tensorframes import images
        >>> tfs.chain(images.decode(), images.resize((32, 32)))
        Program(content: string[?]) -> (resized: float32[?, 32, 32, 3])
    """
    sizing = Sizing.of(size, fit, method, antialias)
    if sizing is None:
        raise ShapeError("the size is None, but (height, width) is wanted.")
    _check_channels(channels)

    def resize_one(image: tf.RaggedTensor) -> tf.Tensor:
        widths = image.row_lengths()
        tf.debugging.assert_equal(widths, widths[:1], "the rows of an image differ in length")
        return sizing.apply(tf.ensure_shape(image.to_tensor(), [None, None, channels]))

    def resized(pixels: tf.RaggedTensor) -> Any:
        return {"resized": _each(resize_one, pixels, channels, sizing)}

    return as_program(resized, None, signature={"pixels": tf.RaggedTensorSpec([None, None, None, channels], tf.float32, ragged_rank=2)})


@verb
def feeds(column: str, *, nulls: Any = "skip") -> dict[str, Feed]:
    """Say which fields of a column of Spark's image schema feed the inputs of `to_tensor`.

    Args:
        column: the column's name, or a path into a struct.
        nulls: what becomes of rows without an image, as for `tensorframes.feed`: "skip" gives them null outputs.

    Returns:
        A ``feed_dict``: ``{"height": tfs.feed("image.height", nulls="skip"), …}``.

    Example:
        >>> from tensorframes import images
        >>> list(images.feeds("image"))
        ['height', 'width', 'nChannels', 'data']
    """
    return {name: feed(f"{column}.{name}", nulls=nulls) for name in FIELDS}


@dataclass(frozen=True, slots=True)
class Sizing:
    """How images are brought to one size.

    Attributes:
        height: wanted, in pixels.
        width: wanted, in pixels.
        fit: what becomes of the aspect ratio.
        method: a name of ``tf.image.ResizeMethod``.
        antialias: whether to smooth before making smaller.
    """

    height: int
    width: int
    fit: Fit
    method: str
    antialias: bool

    @staticmethod
    def of(size: Size, fit: Fit, method: str, antialias: bool) -> Sizing | None:
        """Check what a user gave; None where no size is wanted.

        Raises:
            ShapeError: the size is no pair of positive numbers.
            ProgramError: there is no such fit or method.
        """
        if fit not in get_args(Fit):
            raise ProgramError(f"fit is {fit!r}, but one of {', '.join(map(repr, get_args(Fit)))} is wanted.")
        methods = sorted(value for name, value in vars(tf.image.ResizeMethod).items() if not name.startswith("_"))
        if method not in methods:
            raise ProgramError(f"method is {method!r}, but one of {', '.join(map(repr, methods))} is wanted.")
        if size is None:
            return None
        try:
            height, width = (operator.index(side) for side in size if not isinstance(side, bool | np.bool_))
        except (TypeError, ValueError):  # another number of them, or what is no integer
            height = width = 0
        if min(height, width) <= 0:
            raise ShapeError(f"the size is {size!r}, but (height, width) is wanted, in pixels.")
        return Sizing(height, width, fit, method, bool(antialias))

    def apply(self, pixels: tf.Tensor) -> tf.Tensor:
        """Resize one image ``[?, ?, channels]``; the values become float32 and are not rounded."""
        wanted = self.height, self.width
        if self.fit == "pad":
            return tf.image.resize_with_pad(tf.cast(pixels, tf.float32), *wanted, self.method, self.antialias)
        if self.fit == "crop":
            pixels = self._cut(pixels)
        return tf.image.resize(tf.cast(pixels, tf.float32), wanted, self.method, antialias=self.antialias)

    def _cut(self, pixels: tf.Tensor) -> tf.Tensor:
        """Cut the largest part of the wanted aspect ratio out of the middle."""
        held = tf.shape(pixels, tf.int64)
        height, width = held[0], held[1]
        # At least one pixel is left of an image that is very long.
        high = tf.clip_by_value(width * self.height // self.width, 1, height)
        wide = tf.clip_by_value(height * self.width // self.height, 1, width)
        top, left = (height - high) // 2, (width - wide) // 2
        return pixels[top : top + high, left : left + wide]


def decoded(content: tf.Tensor) -> tf.Tensor:
    """Decode one image with the channels that its file has: 1 to 4, the second or fourth of which is alpha."""
    pixels = tf.io.decode_image(content, channels=0, expand_animations=False)
    return tf.ensure_shape(pixels, [None, None, None])


def finish(pixels: tf.Tensor, channels: int, sizing: Sizing | None) -> tf.Tensor:
    """Bring one image to its channels, and to its size if one is wanted."""
    pixels = _with_channels(pixels, channels)
    return pixels if sizing is None else sizing.apply(pixels)


def _with_channels(pixels: tf.Tensor, channels: int) -> tf.Tensor:
    held = tf.shape(pixels)[-1]
    gray, color = pixels[..., :1], pixels[..., :3]
    if channels == 1:
        return tf.ensure_shape(
            tf.cond(held < 3, lambda: gray, lambda: tf.image.rgb_to_grayscale(tf.ensure_shape(color, [None, None, 3]))), [None, None, 1]
        )
    color = tf.ensure_shape(tf.cond(held < 3, lambda: tf.repeat(gray, 3, axis=-1), lambda: color), [None, None, 3])
    if channels == 3:
        return color
    alpha = tf.cond(held % 2 == 0, lambda: pixels[..., -1:], lambda: tf.fill(tf.shape(gray), tf.constant(255, tf.uint8)))
    return tf.ensure_shape(tf.concat([color, alpha], axis=-1), [None, None, 4])


def _turned(pixels: tf.Tensor) -> tf.Tensor:
    """Turn BGR into RGB; alpha stays the last."""
    colors = tf.reverse(pixels[..., :3], [-1])  # four times as fast as a slice by steps of -1
    return colors if pixels.shape[-1] == 3 else tf.concat([colors, pixels[..., 3:]], axis=-1)


def _each(function: Callable[..., tf.Tensor], images: Any, channels: int, sizing: Sizing | None) -> Any:
    """Apply a function to each image of a block; several are under way at once."""
    if sizing is not None:
        return tf.map_fn(function, images, fn_output_signature=tf.TensorSpec([sizing.height, sizing.width, channels], tf.float32))
    spec = tf.RaggedTensorSpec([None, None, channels], tf.uint8, ragged_rank=1)
    return tf.map_fn(lambda image: tf.RaggedTensor.from_tensor(function(image)), images, fn_output_signature=spec)


def _check_channels(channels: int) -> None:
    if channels not in (1, 3, 4):
        raise ShapeError(f"the channels are {channels!r}, but 1, 3 or 4 are wanted.")
