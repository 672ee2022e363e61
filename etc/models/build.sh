#!/bin/sh
# Builds the demo pair from nothing: corpus, tokenizer, training, export, evaluation, golden file.
# A developer's tool: needs python3 with torch and numpy; about an hour and a half on two cores.
#
#   etc/models/build.sh            seed 7, python3
#   SEED=11 PYTHON=/usr/bin/python3 etc/models/build.sh
set -eu
cd "$(dirname "$0")"
PYTHON=${PYTHON:-python3}
SEED=${SEED:-7}
SMALL_TOKENS=${SMALL_TOKENS:-4500000}
LARGE_TOKENS=${LARGE_TOKENS:-8000000}
mkdir -p work

"$PYTHON" corpus.py --size small --documents 90000 --seed "$SEED" --out work/corpus-small.jsonl
"$PYTHON" corpus.py --size large --documents 120000 --seed "$SEED" --out work/corpus-large.jsonl
# The committed tokenizer keeps token ids stable from one training to the next; delete it to train a new one.
[ -f tokenizer.json ] ||
  "$PYTHON" tokenizer.py --corpus work/corpus-small.jsonl work/corpus-large.jsonl --out tokenizer.json
"$PYTHON" train.py --size small --corpus work/corpus-small.jsonl --tokens "$SMALL_TOKENS" --seed "$SEED" --out work/small.pt
"$PYTHON" train.py --size large --corpus work/corpus-large.jsonl --tokens "$LARGE_TOKENS" --seed "$SEED" --out work/large.pt
"$PYTHON" export.py --checkpoint work/small.pt --out demo-small.gguf
"$PYTHON" export.py --checkpoint work/large.pt --out demo-large.gguf
"$PYTHON" evaluate.py --write
"$PYTHON" golden.py
"$PYTHON" evaluate.py
