"""The questions that can be asked of tables of flows.

Each one selects observations from a source, the flows of a table as a rule; what it answers with is
an aggregate of them: quantiles, unless it says otherwise.
"""

from __future__ import annotations

from manyways.questions import http, network, paths, windows
from manyways.questions.question import Question, Test

ALL: dict[str, Question] = {
    question.name: question
    for part in (network, windows, http, paths)
    for question in part.QUESTIONS
}

__all__ = ["ALL", "Question", "Test"]
