"""`crossinfer chat`: a conversation, line by line."""

from __future__ import annotations

import argparse
import re

from crossinfer.cli import options
from crossinfer.cli.conversation import Conversation, note
from crossinfer.cli.line_input import Lines
from crossinfer.cli.progress_bars import ProgressBars

_COMMANDS = """\
/reset  forget what was said and begin anew
/exit   end (also Ctrl-D)
/help   show this
Ctrl-C stops an answer; a second one, before the answer has stopped, ends the program."""


HELP = """\
Talk with a model: each line of standard input is answered, and what was said is kept.

/reset begins anew, /exit or Ctrl-D ends, Ctrl-C stops an answer, /help says so."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = HELP
    options.add_generation_options(parser)
    options.add_model_options(parser)
    parser.set_defaults(command=chat)


def chat(args: argparse.Namespace) -> None:
    """Raises CrossinferError."""
    with ProgressBars() as bars, options.open_llm(args, bars) as llm:
        conversation = Conversation(llm, args.system, bars, options.generation_options(args))
        lines = Lines()
        if lines.on_terminal:
            note("/help lists the commands; Ctrl-D ends.")
        for line in lines:
            if line == "/exit":
                break
            if line == "/reset":
                conversation.reset()
            elif line == "/help":
                note(_COMMANDS)
            elif re.fullmatch(r"/\w*", line):
                note(f"There is no command {line}; /help lists the commands.")
            elif line:
                conversation.answer(line)
