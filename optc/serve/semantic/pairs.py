"""Questions whose answers are the same, and questions that differ by what decides the answer."""

from __future__ import annotations

from typing import NamedTuple


class Pair(NamedTuple):
    """Two questions.

    Attributes:
        first: One.
        second: The other.
        same: One answer is right for both.
    """

    first: str
    second: str
    same: bool


_SAME = (
    ("How do I reset my password?", "How can I reset my password?"),
    ("What is the capital of France?", "Which city is the capital of France?"),
    ("How long do I have to return an item?", "Within what time can I return an item?"),
    ("Do you ship to Canada?", "Is shipping to Canada possible?"),
    ("How do I cancel my subscription?", "What must I do to cancel my subscription?"),
    ("Where can I see my invoices?", "Where do I find my invoices?"),
    ("How many days are in a leap year?", "A leap year has how many days?"),
    ("Who wrote Hamlet?", "Who is the author of Hamlet?"),
    (
        "At what temperature does water boil at sea level?",
        "What is water's boiling point at sea level?",
    ),
    ("Can I change my delivery address?", "Is it possible to change the address of my delivery?"),
    ("How do I sort a list in Python?", "How can a list be sorted in Python?"),
    ("What are your opening hours on Monday?", "When are you open on Mondays?"),
    (
        "How do I add a second user to my account?",
        "How can I give a second user access to my account?",
    ),
    ("Is breakfast included in the price?", "Does the price include breakfast?"),
    ("Which file types may I upload?", "What types of files can be uploaded?"),
    ("How fast is light in a vacuum?", "What is the speed of light in a vacuum?"),
)
_OTHER = (
    ("How long is the refund window in the EU?", "How long is the refund window in the US?"),
    ("How do I enable two-factor login?", "How do I disable two-factor login?"),
    ("What is 17 times 24?", "What is 17 times 25?"),
    ("What is the capital of Austria?", "What is the capital of Australia?"),
    ("Can I take this drug with alcohol?", "Can I take this drug without alcohol?"),
    ("Who won the final in 2018?", "Who won the final in 2022?"),
    ("How do I upgrade from version 2 to 3?", "How do I downgrade from version 3 to 2?"),
    ("Is the museum open on Sunday?", "Is the museum open on Saturday?"),
    ("How do I sort a list in ascending order?", "How do I sort a list in descending order?"),
    ("Which plan includes phone support?", "Which plan does not include phone support?"),
    ("How many grams are in 3 ounces?", "How many ounces are in 3 grams?"),
    (
        "What is the fee for a wire transfer to Brazil?",
        "What is the fee for a wire transfer from Brazil?",
    ),
    ("What happens if I pay before the due date?", "What happens if I pay after the due date?"),
    ("How do I open port 8080?", "How do I close port 8080?"),
    ("Translate 'good morning' into Spanish.", "Translate 'good morning' into Portuguese."),
    (
        "What does a monthly ticket cost for adults?",
        "What does a monthly ticket cost for children?",
    ),
    ("Is it safe to eat raw eggs?", "Is it unsafe to eat boiled eggs?"),
    (
        "When does the train from Bern to Basel leave?",
        "When does the train from Basel to Bern leave?",
    ),
    ("What is the largest prime below 100?", "What is the smallest prime above 100?"),
    ("How do I delete a branch locally?", "How do I delete a branch on the remote?"),
    ("Which is the longest river of Asia?", "Which is the longest river of Africa?"),
    ("How do I mute all participants?", "How do I unmute all participants?"),
    ("What is the maximum dose for a child?", "What is the maximum dose for an adult?"),
    ("Summarize the first chapter.", "Summarize the last chapter."),
)
#: Of our own writing.
SHIPPED = (*(Pair(*one, True) for one in _SAME), *(Pair(*one, False) for one in _OTHER))
