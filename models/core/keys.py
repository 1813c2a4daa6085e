"""Keys of ops, resources and memory pools: what they are, of which names are made."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self


@dataclass(frozen=True)
class DeviceName:
    """The name of a resource or a pool: what it is, and the devices to which it belongs.

    Its text is made from these and never read: ``device 3``, ``link 0->1``, ``node comm 0-3``.
    """

    role: str
    devices: tuple[int, ...] = ()
    joint: str = field(default="+", compare=False)  # between the devices in the text

    def __str__(self) -> str:
        """Return the text that users see."""
        if not self.devices:
            return self.role
        return f"{self.role} {self.joint.join(map(str, self.devices))}"

    @property
    def device(self) -> int | None:
        """The first of its devices."""
        return self.devices[0] if self.devices else None

    def moved(self, by: int) -> Self:
        """Return the same on devices whose numbers are larger by `by`."""
        return replace(self, devices=tuple(device + by for device in self.devices))


class OpKey(NamedTuple):
    """What an op is; -1 stands for a label that it lacks. The pieces of an op have one key."""

    kind: str
    stage: int
    device: int
    microbatch: int


class JoinedOps(NamedTuple):
    """What an op is that runs several ops as one: their keys and their names."""

    keys: tuple[OpKey, ...]
    names: tuple[str, ...]
