"""Eight servers and thirty-two clients at random: all stay whole, and a router agrees with each.

The same for ten minutes: `python -m bench.agreement`.
"""

from tests.e2e.fleet import Fleet


def test_servers_stay_whole_and_the_index_agrees(tmp_path):
    fleet = Fleet(tmp_path, servers=8, clients=32, seed=2026)
    try:
        for _ in range(4):
            fleet.run(2.5)
            fleet.kill_a_server()
            fleet.kill_a_client()
            fleet.run(2.5)
            fleet.pause()
        fleet.end()
        counts = fleet.counts()
        assert min(counts[step] for step in ("match", "admit", "publish", "finish", "abort")) > 50
        assert fleet.num_cuts > 20
    finally:
        fleet.close()
