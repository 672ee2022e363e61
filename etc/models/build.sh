#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the demo pair from nothing: corpus, tokenizer, training, export, evaluation, golden file.
# A developer's tool: needs python3 with torch and numpy and a fast BLAS (libopenblas0); about two hours on two
# quiet cores with AMX. The committed files were made in several runs, see README.md.
#
#   etc/models/build.sh            seed 7, python3
#   SEED=11 PYTHON=/usr/bin/python3 etc/models/build.sh
#   PRECISION=f32 etc/models/build.sh    faster on processors without products of bfloat16
set -eu
cd "$(dirname "$0")"
PYTHON=${PYTHON:-python3}
SEED=${SEED:-7}
PRECISION=${PRECISION:-bf16}
mkdir -p work

"$PYTHON" corpus.py --size small --documents 90000 --seed "$SEED" --out work/corpus-small-1.jsonl
"$PYTHON" corpus.py --size large --documents 120000 --seed "$SEED" --out work/corpus-large-1.jsonl
# The committed tokenizer keeps token ids stable from one training to the next; delete it to train a new one.
[ -f tokenizer.json ] ||
  "$PYTHON" tokenizer.py --corpus work/corpus-small-1.jsonl work/corpus-large-1.jsonl --out tokenizer.json

# train SIZE TOKENS TOKENS_2 TOKENS_3: the facts first, then a pass with more of what needs exact copying, then one with tools.
train() {
  "$PYTHON" train.py --size "$1" --corpus "work/corpus-$1-1.jsonl" --tokens "$2" --seed "$SEED" \
    --precision "$PRECISION" --out "work/$1-1.pt"
  "$PYTHON" corpus.py --size "$1" --phase 2 --documents 60000 --seed "$SEED" --out "work/corpus-$1-2.jsonl"
  "$PYTHON" train.py --size "$1" --start "work/$1-1.pt" --corpus "work/corpus-$1-2.jsonl" --tokens "$3" \
    --lr 0.012 --embedding-lr 0.002 --seed "$SEED" --precision "$PRECISION" --out "work/$1-2.pt"
  "$PYTHON" corpus.py --size "$1" --phase 3 --documents 110000 --seed "$SEED" --out "work/corpus-$1-3.jsonl"
  "$PYTHON" train.py --size "$1" --start "work/$1-2.pt" --corpus "work/corpus-$1-3.jsonl" --tokens "$4" \
    --lr 0.01 --embedding-lr 0.002 --seed "$SEED" --precision "$PRECISION" --out "work/$1-3.pt"
  "$PYTHON" export.py --checkpoint "work/$1-3.pt" --out "demo-$1.gguf"
}
train small 4500000 6300000 12000000
train large 8000000 5000000 12000000

# The head that drafts for the large model, which it is trained on; half an hour.
"$PYTHON" head.py --base demo-large.gguf --corpus work/corpus-large-1.jsonl work/corpus-large-3.jsonl --tokens 900000 \
  --seed "$SEED" --precision "$PRECISION" --out demo-large-head.gguf

# adapt NAME RANK TOKENS RATE BATCH: an adapter of the large model, and the first of its held-out questions; some six minutes each.
adapt() {
  "$PYTHON" tasks.py --task "$1" --documents 44000 --seed "$SEED" --out "work/corpus-$1.jsonl"
  "$PYTHON" adapter.py --base demo-large.gguf --corpus "work/corpus-$1.jsonl" --name "$1" --rank "$2" --tokens "$3" --lr "$4" \
    --batch "$5" --seed "$SEED" --precision "$PRECISION" --out "demo-large-$1.gguf"
  "$PYTHON" tasks.py --task "$1" --held-out 240 --out "$1.jsonl"
}
adapt pirate 4 4500000 0.002 4096
adapt json 6 3100000 0.003 2048
adapt museum 6 3840000 0.002 4096

"$PYTHON" evaluate.py --write
"$PYTHON" golden.py
"$PYTHON" evaluate.py
