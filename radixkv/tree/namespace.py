"""What must match besides tokens for two prompts to share."""

from dataclasses import dataclass, fields

from radixkv.errors import InvalidNamespaceError

MAX_WEIGHT_VERSION = 2**64 - 1
# Of each text. Trees, logs and routers keep namespaces for as long as anything in them is known.
LONGEST_FIELD_BYTES = 256


@dataclass(frozen=True, slots=True)
class Namespace:
    """A tagged tuple, compared field by field and never joined; None and "" differ.

    Attributes
    ----------
    salt
        Of the tenant, set by a party the tenants cannot impersonate.
    adapter
        LoRA or other adapter.
    extra_key
        Whatever else the engine keeps apart.
    weight_version
        0 to 2**64 - 1; 0 stands for the present weights in `PrefixCache`.

    Raises
    ------
    InvalidNamespaceError
        For a field of another type, or above 256 bytes of UTF-8.

    Examples
    --------
    >>> Namespace(salt="ab", adapter="c") == Namespace(salt="a", adapter="bc")
    False
    """

    salt: str | None = None
    adapter: str | None = None
    extra_key: str | None = None
    weight_version: int = 0

    def __post_init__(self) -> None:
        for field in fields(self)[:3]:
            value = getattr(self, field.name)
            if value is not None and not isinstance(value, str):
                raise InvalidNamespaceError(
                    f"namespace {field.name} must be a str or None; got {value!r}",
                    field=field.name,
                )
            if value and _num_bytes(value) > LONGEST_FIELD_BYTES:
                raise InvalidNamespaceError(
                    f"namespace {field.name} must be at most {LONGEST_FIELD_BYTES} bytes; "
                    f"got {_num_bytes(value)}",
                    field=field.name,
                )
        version = self.weight_version
        if type(version) is not int or not 0 <= version <= MAX_WEIGHT_VERSION:
            raise InvalidNamespaceError(
                f"weight_version must be an int from 0 to 2**64 - 1; got {version!r}",
                field="weight_version",
            )

    @property
    def num_bytes(self) -> int:
        """What its texts take."""
        return sum(_num_bytes(text) for text in (self.salt, self.adapter, self.extra_key) if text)


def _num_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


DEFAULT = Namespace()


def check_namespace(value: object) -> None:
    """Raises InvalidNamespaceError for anything but a `Namespace`."""
    if not isinstance(value, Namespace):
        raise InvalidNamespaceError(f"namespace must be a radixkv.Namespace; got {value!r}")
