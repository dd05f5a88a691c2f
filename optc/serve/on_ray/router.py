"""`InOrder`: a router of Ray's, which tries replicas in the order that a request brings."""

from __future__ import annotations

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica


class InOrder(RequestRouter):
    """Sends a request to the first replica of its order (its second argument) that takes it; those
    that are not named come last. Names are the unique parts of Ray's ids."""

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """The candidates, each a rank of its own."""
        order: list[str] = []
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True  # where none takes it
            order = pending_request.args[1]
        places = {name: place for place, name in enumerate(order)}
        last = len(places)
        ranked = sorted(
            candidate_replicas, key=lambda one: places.get(one.replica_id.unique_id, last)
        )
        return [[one] for one in ranked]
