"""The table of sets that can be prepared from archives; a new one is one line here."""

import dataclasses

from flowjax_inv.data.archives import CifarBinary, Format, Idx
from flowjax_inv.data.faces import OlivettiFaces
from flowjax_inv.data.picture_archives import PictureFolder, TinyImageNet

__all__ = ["GENERATED", "SETS", "Recipe"]

# Sets made by code, by SETS of experiments/setup/data_sets.py; a stored set of such a
# name would not be read.
GENERATED = (
    "clusters", "mario_iggy", "molecules", "picture_classes", "pictures", "printed_digits",
    "scenes", "textures",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a set is stored: TFDS's version and description, and the format of its archive.

    Attributes:
        format: reads the archive.
        version: TFDS's.
        description: one line.
        homepage: where it comes from.
        ids: whether examples carry TFDS's text feature `id`.
    """

    format: Format
    version: str
    description: str
    homepage: str = ""
    ids: bool = False


# sha256 of the uncompressed files; the gzip wrappers of mirrors differ.
_MNIST = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
_FASHION = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
_CLOTHES = "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot"
_CIFAR = "airplane,automobile,bird,cat,deer,dog,frog,horse,ship,truck"
# The .tar.gz's own, as TFDS has it.
_CIFAR_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
# Of the grey levels, 400 x 112 x 92, of a public copy of the ORL pictures.
_FACES = "2e4844a9f4fa4397058f69d6208047170f2e9d399cda18b55c1e8d28f0a83431"

SETS: dict[str, Recipe] = {
    "mnist": Recipe(
        Idx(_MNIST, tuple("0123456789")),
        "3.0.1",
        "The MNIST database of handwritten digits.",
        "http://yann.lecun.com/exdb/mnist/",
    ),
    "fashion_mnist": Recipe(
        Idx(_FASHION, tuple(_CLOTHES.split(","))),
        "3.0.1",
        "Fashion-MNIST: Zalando's article images.",
        "https://github.com/zalandoresearch/fashion-mnist",
    ),
    "cifar10": Recipe(
        CifarBinary(_CIFAR_SHA256, tuple(_CIFAR.split(","))),
        "3.0.2",
        "CIFAR-10: 32x32 colour images in 10 classes.",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        ids=True,
    ),
    "tiny_imagenet": Recipe(
        TinyImageNet(),
        "1.0.0",
        "Tiny ImageNet: 200 classes of ImageNet at 64x64.",
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    ),
    "olivetti": Recipe(
        OlivettiFaces(_FACES),
        "1.0.0",
        "The Olivetti (ORL) faces at 64x64: 40 people, ten pictures each.",
        "https://cam-orl.co.uk/facedatabase.html",
    ),
    "folder": Recipe(PictureFolder(), "1.0.0", "Pictures from folders of classes."),
}
