"""The board of a run on Ray: what it says of workers that are lost. No cluster is needed."""

from __future__ import annotations

from consilience.scoring.ray_board import Board, Tried


def begun(board: Board, worker: str, block: int, teacher: str = "") -> None:
    board.begin(worker, block, 0)
    if teacher:
        board.report(worker, block, 0, teacher, 0)


def test_the_teacher_of_a_lost_worker_is_known_though_it_begins_another_block_first() -> None:
    board = Board()
    board.enter("w1", "process 1", None)
    board.enter("w2", "process 2", None)
    begun(board, "w1", 4, "deadly")
    begun(board, "w1", 5, "deadly")  # started again, with another block
    board.report("w1", 5, 0, "", 64)
    begun(board, "w2", 4, "deadly")
    begun(board, "w2", 6)
    begun(board, "w1", 4)  # lost before it said anything
    assert board.view([5]).tried == Tried(4, 3, "deadly")


def test_the_last_lost_worker_counts() -> None:
    board = Board()
    for worker, teacher in [("w1", "first"), ("w2", "second"), ("w3", "third")]:
        board.enter(worker, worker, None)
        begun(board, worker, 4, teacher)
    view = board.view([])
    assert view.tried == Tried(4, 3, "second")
    assert [(at.worker, at.teacher) for at in view.at] == [("w3", "third")]


def test_blocks_that_the_driver_has_are_forgotten() -> None:
    board = Board()
    board.enter("w1", "process 1", None)
    begun(board, "w1", 4, "first")
    begun(board, "w1", 4, "first")
    assert board.view([4]).tried == Tried()
    assert board.view([4]).rows == 0
