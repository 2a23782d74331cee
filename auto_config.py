"""Entry: look at the machine, choose, print every choice with its reason, write the model repository to the run folder.

Usage: python auto_config.py [CHECKPOINT]     (settings come from the environment; standard library only)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from parakeet_mps.choices import make_plan
from parakeet_mps.gpu_memory import weights_mb
from parakeet_mps.hardware import HardwareError, probe
from parakeet_mps.model_config import ConfigError, Locations, write_repository
from parakeet_mps.run_folder import RunFolder, RunFolderError
from parakeet_mps.settings import SettingError, Settings
from parakeet_mps.usage import HELP, help_text

ROOT = Path(__file__).resolve().parent


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Configure the run folder; exit status 2 and one line when a setting or the machine does not allow it."""
    if HELP.intersection(arguments):
        sys.stdout.write(help_text("python auto_config.py [CHECKPOINT]", "Look at the machine, choose, and say why."))
        return 0
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        sys.stderr.write("auto_config: takes a checkpoint, or --help; its settings are environment variables\n")
        return 2
    try:
        settings = Settings.from_env(environ)
        run = RunFolder(settings.run_path)
        run.check_not_others(os.getppid())  # the service itself runs this
        checkpoint = Path(arguments[0] if arguments else settings.model).expanduser().absolute()
        plan = make_plan(settings, probe(environ), weights_mb(checkpoint))
        locations = Locations(*map(str, (checkpoint, run.unpacked, ROOT, run.load_lock, run.heartbeats)))
        write_repository(plan, locations, ROOT / "triton_model_repo", run.model_repository)
        run.plan.write_text(plan.to_json(), encoding="utf-8")
    except (SettingError, HardwareError, ConfigError, RunFolderError, OSError) as error:
        sys.stderr.write(f"auto_config: {error}\n")
        return 2
    sys.stdout.writelines(f"auto_config: {line}\n" for line in plan.lines())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
