"""What makes a shell complete the command, printed by shtab: files, devices, names of passes."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from rnnmem.errors import OptionError

FILES = {
    "bash": "_shtab_compgen_files",
    "zsh": "_files",
    "tcsh": "f",
    "fish": "(__fish_complete_path (string replace -r '^--[^=]*=' '' -- (commandline -ct)))",
}
DEVICES = {
    "bash": "_rnnmem_devices",
    "zsh": "_rnnmem_devices",
    "tcsh": "$rnnmem_devices",
    "fish": "CPU GPU",
}
PASSES = {
    "bash": "_rnnmem_passes",
    "zsh": "_rnnmem_passes",
    "tcsh": "$rnnmem_passes",
    "fish": "(__fish_complete_list , _rnnmem_passes)",
}
"""Shell -> its word for what completes an argument; those with rnnmem in them are defined below."""
_KINDS = "CPU GPU"
_WORDS = {
    "bash": """\
_rnnmem_devices() {{ compgen -W "{devices}" -- "$1"; }}
_rnnmem_passes() {{  # those before the last comma stay
  compgen -P "${{1%"${{1##*,}}"}}" -W "{passes}" -- "${{1##*,}}"
}}""",
    "zsh": """\
_rnnmem_devices() {{ compadd {devices} }}
_rnnmem_passes() {{ _values -s , pass {passes} }}""",
    "tcsh": """\
set rnnmem_devices = ({devices})
set rnnmem_passes = ({passes})""",
    "fish": """\
function _rnnmem_passes
  string split " " "{passes}"
end""",
}
# bash parts words at =, and what shtab prints knows `--device CPU` alone.
_JOINED_IN_BASH = """
_rnnmem() {
  local -a words=()
  local at behind=0 place=$COMP_CWORD
  for at in "${!COMP_WORDS[@]}"; do
    if [[ ${COMP_WORDS[at]} == = && ${COMP_WORDS[at - 1]} == --* && $behind = 0 ]]; then
      behind=1
      if ((at == COMP_CWORD)); then words+=(""); else ((at < COMP_CWORD)) && ((place -= 1)); fi
    else
      behind=0
      words+=("${COMP_WORDS[at]}")
    fi
  done
  local -a COMP_WORDS=("${words[@]}")
  local COMP_CWORD=$place
  _shtab_rnnmem
}
complete -o bashdefault -F _rnnmem rnnmem"""
_VALUE_IN_ZSH = re.compile(r'^(\s*"\*?--[\w-]+)(\[.*\]:)', re.MULTILINE)


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """A shell's completion script of a parser; its arguments' ``complete`` are those above.

    Raises:
      ImportError: shtab is missing.
      OptionError: it knows no such shell.
    """
    import shtab

    known = shtab.SUPPORTED_SHELLS
    if shell not in known:
        raise OptionError(f"--print-completion={shell} is none of {', '.join(known)}")
    words = _WORDS.get(shell, "").format(devices=_KINDS, passes=" ".join(_passes()))
    made = shtab.complete(parser, shell, preamble={shell: words})
    if shell == "bash":
        return str(made) + _JOINED_IN_BASH
    # Values may stand behind a space or behind =.
    return _VALUE_IN_ZSH.sub(r"\1=\2", made) if shell == "zsh" else str(made)


def _passes() -> Sequence[str]:
    """Names that ``--allow`` takes: of groups, and of passes."""
    from rnnmem.passes.registry import BY_NAME, GROUPS  # only who asks for it waits for it

    return [*GROUPS, *BY_NAME]
