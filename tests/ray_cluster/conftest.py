"""A Ray cluster of two nodes on this machine, with a processor each; the tests are skipped where Ray cannot run."""

import logging
import os

import part_work
import pytest

# Workers import the functions that the tests give them.
os.environ["PYTHONPATH"] = os.pathsep.join([os.path.dirname(part_work.__file__), os.environ.get("PYTHONPATH", "")])
# A busy machine takes its time.
os.environ.setdefault("RAY_raylet_start_wait_time_s", "180")
os.environ.setdefault("RAY_gcs_server_request_timeout_seconds", "180")
ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'bayesify[ray]'")


@pytest.fixture(scope="session")
def cluster():
    from ray.cluster_utils import Cluster

    try:
        made = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 1, "include_dashboard": False, "object_store_memory": 150 << 20},
        )
        ray.init(address=made.address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as problem:  # noqa: BLE001 -- a container without shared memory or free ports, a machine that is too small
        pytest.skip(f"Ray does not start here: {str(problem).splitlines()[0]}")
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def second_node(cluster):
    node = cluster.add_node(num_cpus=1, object_store_memory=150 << 20)
    cluster.wait_for_nodes()
    yield node
    if node in cluster.worker_nodes:
        cluster.remove_node(node)
