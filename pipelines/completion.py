"""``penstock completion``: the script that lets a shell complete commands, options and choices."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter


def command(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="which shell it is for")], /
) -> None:
    """Print a shell's completion script.

    bash:  penstock completion bash > ~/.local/share/bash-completion/completions/penstock
    zsh:   penstock completion zsh > a folder of $fpath, under the name _penstock
    fish:  penstock completion fish > ~/.config/fish/completions/penstock.fish
    """
    from penstock.pipelines.cli import app

    print(app.generate_completion(shell=shell))
