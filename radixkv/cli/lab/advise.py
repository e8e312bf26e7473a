"""`radixkv lab advise`: what to do with a log, in one paragraph."""

import textwrap
from dataclasses import asdict

from radixkv.cli.lab.options import CacheOptions, Jobs, LogOptions, PrefillOptions, Target, bar
from radixkv.cli.options import with_options
from radixkv.cli.show import Json, console, print_json


@with_options
def lab_advise(
    log: LogOptions,
    cache: CacheOptions,
    prefill: PrefillOptions,
    target: Target = None,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """How much room a log takes for a hit rate, which policy and order, and what to move."""
    from radixkv.lab.report.advice import advise, check_target

    setting, serving, wanted = cache.setting(), prefill.serving(), check_target(target)
    _, requests = log.read_contents()
    with bar("replaying", 0) as progress:
        found = advise(
            requests, setting, target=wanted, serving=serving, jobs=jobs, progress=progress
        )
    if as_json:
        print_json({"advice": found.paragraph(), **asdict(found)})
    else:
        screen = console()
        screen.print(textwrap.fill(found.paragraph(), min(screen.width, 100)), markup=False)
