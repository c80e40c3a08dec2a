"""The options of ``penstock run``, ``penstock runs clean`` and ``penstock runs serve``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from pydantic import Field

from penstock.options import options


@options
class RunOptions:
    """Options of ``penstock run``."""

    set: tuple[str, ...] = ()
    """a variable of the flow, as name=value; may be repeated"""
    force: Annotated[bool, Parameter(negative="")] = False
    """run every stage, also those whose inputs and options are unchanged"""
    first: Annotated[str | None, Parameter(name="--from")] = None
    """run this stage and those that depend on it; the others must be there"""
    only: tuple[str, ...] = ()
    """run this stage alone; may be repeated"""
    replace_targets: Annotated[bool, Parameter(negative="")] = False
    """publish also over what this flow has not published, which is kept as NAME.previous"""
    replace_outputs: Annotated[bool, Parameter(negative="")] = False
    """stages may also replace what this flow has not made; it is not kept"""
    report: bool = True
    """write a page about the run into its folder, as penstock report does"""


@options
class CleanOptions:
    """Options of ``penstock runs clean``."""

    keep: Annotated[int, Field(ge=0)] = 7
    """runs of each flow to keep; the last one that passed stays, since gates compare with it"""


@options
class ServeOptions:
    """Options of ``penstock runs serve``."""

    port: Annotated[int, Field(ge=0, le=65535)] = 8780
    """port of 127.0.0.1 to listen on; 0: any that is free"""
