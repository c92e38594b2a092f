#!/bin/sh
# The whole road on the embedded corpus: `make demo`. Each step is a command you can type yourself;
# what is there already is not made again.
set -eu
RUN=${1:-runs/dates}
NAME=$(basename "$RUN")
EXPORTED=exported/$NAME # its name is the model's

title() { printf '\n\033[1m== %s\033[0m\n' "$1"; }
step() { title "$1"; shift; echo "\$ $*"; "$@"; }

step "1. Train on dates as people write them in 16 languages" \
    tfformer train dates --run "$RUN" --resume

if [ "$RUN/evaluation.json" -nt "$RUN/config.json" ]; then
    title "2. Evaluated before: $RUN/evaluation.json"
else
    step "2. Evaluate on 1,000 dates that no training pair has" \
        tfformer evaluate "$RUN" --recipe dates
fi

PICTURE="$RUN/attention.png"
if [ "$PICTURE" -nt "$RUN/config.json" ]; then
    title "3. Drawn before: $PICTURE"
else
    title "3. A picture of the attention of one sentence"
    echo "\$ echo 'viernes, 4 de julio de 2031' | tfformer translate $RUN --picture $PICTURE"
    echo 'viernes, 4 de julio de 2031' | tfformer translate "$RUN" --picture "$PICTURE"
fi

newest() { ls "$EXPORTED" 2>/dev/null | grep -E '^[0-9]+$' | sort -n | tail -n 1; }

if [ -n "$(newest)" ] && [ "$EXPORTED/$(newest)" -nt "$RUN/config.json" ]; then
    title "4. Exported before: $EXPORTED/$(newest)"
else
    step "4. Export a SavedModel and verify it as the server will load it" \
        tfformer export "$RUN" "$EXPORTED"
fi

title "5. Five translations through the exported signature"
DATES='Friday, July 4, 2031
den 24 december 1998
29 февраля 2024 г.
2008年8月8日金曜日
lundi 14 juillet 2036'
echo "\$ tfformer translate-export $EXPORTED"
echo "$DATES" | tfformer translate-export "$EXPORTED" > "$RUN/translated.txt"
echo "$DATES" | paste -d '	' - "$RUN/translated.txt"

cat <<END

The model card is $RUN/README.md, the training curve $RUN/curve.png, the attention
$RUN/attention.png, the scores
$RUN/evaluation.json, the SavedModel $EXPORTED/$(newest) and what was verified $EXPORTED/$(newest).report.json.

Serve it with a stock TensorFlow Serving (2.14 or newer), then ask it:
  docker compose -f $EXPORTED/docker-compose.yml up --wait   # or tfformer serve $EXPORTED
  curl -d '{"instances": ["4 July 2031"]}' localhost:8501/v1/models/$NAME:predict

Train on two text files of your own, line N of one the translation of line N of the other:
  . .venv/bin/activate
  tfformer train --source train.en --target train.de --run runs/mine
  tfformer export runs/mine exported/mine
END
