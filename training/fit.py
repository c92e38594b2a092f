"""The training itself: a plain `compile` and `fit`, epoch by epoch, that can be killed anywhere.

A run directory of a training holds, beside what `tfformer.run` describes (the best model):

    prepared/                 settings, tokenizer and corpus: made once, there whole or not at all
    checkpoints/last.npz      the whole state, to go on from
    checkpoints/epoch-7.npz   the weights behind an epoch, to average
    log.csv, curve.png, tensorboard/
    sessions.json             when, where and for how long it trained
    README.md                 the model card
"""

import contextlib
import dataclasses
import signal
import time
from pathlib import Path

import keras
import tensorflow as tf

from tfformer import run
from tfformer.files import RunError, write_json
from tfformer.service.translator import Translator
from training import checkpoint
from training.data.batches import Batches
from training.data.corpus import Corpus
from training.data.noise import Noise
from training.prepare import PREPARED, prepare, read_tokenizer
from training.recipe import AUTO
from training.report import machine
from training.report.card import update_card
from training.report.history import write_history
from training.report.progress import Diverged, EpochProgress, console, write_curve
from training.report.session import Session
from training.step.allocator import keep_freed_memory
from training.step.budget import LEAST_STEPS, has_gpu, largest_batch_tokens, training_step
from training.step.cores import cores_of, keep_operations_apart, share_threads
from training.step.model import beginning, compiled_model
from training.step.strategy import Strategy
from training.validation import Validation

# Texts of the validation corpus that a run remembers.
EXAMPLES = 32


class Interrupted(Exception):
    """A signal asked the training to stop; its state is saved."""

    def __init__(self, number):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


class Training:
    """A training in a run directory.

    Args:
        directory: the run directory. A new one is prepared from the recipe; one that was begun
            goes on with what it has prepared.
        recipe: a `Recipe`. Of a run that goes on, only the settings are used.
        data: the folder that the recipe's corpus is read from, if it needs one.
        init: a run to begin with: its sizes, vocabulary and weights. Default: random weights of
            the recipe's preset.

    Raises:
        RunError, CorpusError: what is wrong with the directory or the corpus, before a step is
            made.
        WorkerError: the chief of several workers could not begin.
        ValueError: Keras runs on another backend than TensorFlow, or the strategy needs what is
            not here.
    """

    def __init__(self, directory, recipe, data=None, init=None):
        self.directory = Path(directory)
        if (backend := keras.backend.backend()) != "tensorflow":
            raise ValueError(
                f"training.train needs KERAS_BACKEND=tensorflow, got {backend}: with another "
                "backend train by the model's own fit"
            )
        if recipe.batch_tokens == AUTO and not has_gpu():
            raise ValueError(
                f"batch_tokens={AUTO} fills the memory of a GPU, and there is none: give a number"
            )
        # First of all: threads can be shared, and workers joined, only before TensorFlow has
        # computed anything.
        self.recipe = recipe = dataclasses.replace(recipe, cores=cores_of(recipe))
        in_time = recipe.cores == 1 or share_threads(recipe.cores)
        if recipe.strategy != "tpu" and not has_gpu():
            keep_operations_apart()
        self.strategy = Strategy(recipe.strategy)
        self.console = console(quiet=not self.strategy.is_chief)
        self.say = self.console.print
        if not in_time:
            self.say("TensorFlow was at work before and keeps its threads: it will take longer")
        self.checkpoints = self.directory / "checkpoints"
        self.last = self.checkpoints / "last.npz"
        # One seed for the initial weights and the generators of dropout. Before there is a
        # tokenizer: seeding clears TensorFlow's kernels, and with them SentencePiece's models.
        keras.utils.set_random_seed(recipe.seed)
        with self.strategy.together():
            self._set_up(data, init)

    def _set_up(self, data, init):
        """All that the first step needs."""
        recipe, prepared = self.recipe, self.directory / PREPARED
        self.strategy.chief_first(lambda: self._make_ready(prepared, data, init))
        self.tokenizer = read_tokenizer(prepared)
        recipe.require_vocabulary(self.tokenizer.is_shared)
        train, val = Corpus(prepared / "train"), Corpus(prepared / "val")
        keep_freed_memory()
        # A compiled step wants few shapes; one in parts takes its rows apart before it packs.
        packed = self._packs() and self._is_simple()
        tokens = recipe.batch_tokens
        if tokens == AUTO:
            tokens = recipe.max_tokens
        noise = Noise(
            self.tokenizer,
            recipe.subword_sampling,
            recipe.word_dropout,
            sampling_from=recipe.subword_sampling_from,
        )
        self.train = Batches(
            train,
            self.tokenizer,
            tokens,
            recipe.seed,
            parts=recipe.accumulate * recipe.cores,
            packed=packed,
            noise=noise,
            both_ways=recipe.both_ways,
        )
        dtype = recipe.dtype
        if dtype == AUTO:
            slow = self.strategy.any(not machine.has_bfloat16())
            dtype = "float32" if slow else "mixed_bfloat16"
            self.say(f"dtype: {dtype}")
        with self.strategy.scope():
            self.model = compiled_model(
                *beginning(prepared, recipe, self.tokenizer),
                dataclasses.replace(recipe, dtype=dtype),
                steps=len(self.train),
                simple=self._is_simple(),
                packed=self._packs(),
            )
        self.strategy.spread_dropout(self.model)
        self.search = {
            "beam_width": recipe.beam_width,
            "length_penalty": recipe.length_penalty,
            "max_source_length": recipe.max_tokens,
            "max_target_length": recipe.max_tokens,
        }
        # Validation takes no batch apart: there each of those that follow one another is a batch,
        # and where no GPU compiles it, without its padding.
        self.validation = Validation(
            val,
            self.model,
            Translator(self.model, self.tokenizer, **self.search),
            self.strategy,
            tokens // recipe.accumulate,
            packed=self.strategy.is_none and not has_gpu(),
        )
        self.epoch_weights = checkpoint.EpochWeights(self.checkpoints, recipe.average)
        self.progress = {"epoch": 0, "batch": 0, "seconds": 0.0, "history": [], "best": None}
        self.stop_signal = None

    def _make_ready(self, prepared, data, init):
        """What one worker does for all: the folders, with all that is prepared once."""
        if not prepared.is_dir():
            if (self.directory / "config.json").exists() or self.last.exists():
                raise RunError(
                    f"{self.directory} holds a model, and not what it was trained with "
                    f"({PREPARED}): choose another run directory"
                )
            prepare(prepared, self.recipe, data, self.say, init)
        self.checkpoints.mkdir(exist_ok=True)

    def largest_batch(self):
        """Of a training with batch_tokens="auto": what it should be. It cannot train afterwards.

        Raises:
            MemoryError: there is no room for any.
        """
        least = self.recipe.max_tokens
        # As in the last epoch: with R-Drop, if it is ever in use.
        self.progress["epoch"] = self.recipe.epochs - 1
        self._set_r_drop()
        _, longest = self.train.shape(self.train.buckets[-1])
        step = training_step(self.model, longest, self.train.passes)
        most = self.train.padded_tokens // LEAST_STEPS
        found = largest_batch_tokens(step, least, max(least, most))
        self.say(f"batch_tokens: {found:,}, the most that fit")
        return found

    def _is_simple(self):
        """Whether one device computes a batch at once, and has nobody to ask."""
        return self.strategy.is_none and self.recipe.accumulate == self.recipe.cores == 1

    def _packs(self):
        """Whether padding is left out: where no compiler wants few shapes.

        Keras compiles by XLA what one GPU computes, and everything on a TPU.
        """
        alone_on_gpu = self._is_simple() and has_gpu()
        return self.recipe.strategy != "tpu" and not alone_on_gpu

    def resume(self):
        """Puts the last checkpoint back. A run that was killed before its first one starts.

        Raises:
            RunError: the checkpoint is damaged, or not the same for all workers.
            ValueError: the recipe has fewer epochs than the run has begun.
        """
        # The first step makes the variables of optimizer and metrics; without one, they are
        # made here, from a batch that is not learned from.
        if self.last.exists():
            with self.strategy.together():
                self._build()
                self.progress = checkpoint.restore(self.last, self.model)
                self.strategy.spread_dropout(self.model)
        place = _step(self.model)
        if self.strategy.any(place != self.strategy.chiefs(place)):
            raise RunError(
                f"the workers do not see one and the same {self.last}: --run must be a folder that "
                "all of them share"
            )
        ended, epochs = self.progress["epoch"], self.recipe.epochs
        if self.progress["batch"] and ended >= epochs:
            raise ValueError(
                f"epochs must be at least {ended + 1}, in whose middle the run is, got {epochs}"
            )

    def _build(self):
        ids = tf.zeros([1, 2], tf.int32)
        with self.strategy.scope():
            self.model.test_on_batch({"source_ids": ids, "target_ids": ids}, ids)

    def run(self):
        """Trains to the end of the recipe; leaves the best model in the run directory.

        Returns:
            The history, a dict an epoch.

        Raises:
            Interrupted: by SIGINT or SIGTERM, the state saved.
            Diverged: naming the step; the last good checkpoint stays.
        """
        recipe, progress = self.recipe, self.progress
        started = time.monotonic() - progress["seconds"]
        self.clock = lambda: time.monotonic() - started
        if self.strategy.is_chief:
            writer = tf.summary.create_file_writer(str(self.directory / "tensorboard"))
        else:
            writer = tf.summary.create_noop_writer()
        with (
            self._signals(),
            self.strategy.together(),
            writer.as_default(),
            self._session() as self.session,
        ):
            self._sweep()
            self._update_search()
            # A half epoch is brought to its end, whatever the time.
            while progress["epoch"] < recipe.epochs and (
                progress["batch"] or not self._should_stop()
            ):
                row = self._train_epoch()
                self.obey_signal()
                last = row["epoch"] == recipe.epochs or self._out_of_time()
                if last or row["epoch"] % recipe.validate_every == 0:
                    row.update(self._validate(row))
                self._finish_epoch(row)
                writer.flush()
                self.obey_signal()
            self._validate_last()
            self._average()
        return progress["history"]

    def _sweep(self):
        """Removes what a killed save has left behind."""
        if self.strategy.is_chief:
            for folder, name in ((self.checkpoints, "*"), (self.directory, "weights-*")):
                for partial in folder.glob(f".{name}.partial"):
                    partial.unlink(missing_ok=True)

    def _update_search(self):
        """A run that goes on with other settings of the search serves its model with these."""
        path = self.directory / "config.json"
        if self.strategy.is_chief and path.exists():
            config = run.read_config(self.directory)
            if config["search"] != self.search:
                write_json(path, config | {"search": self.search})

    def _session(self):
        """What this session costs; None where another worker counts."""
        if not self.strategy.is_chief:
            return contextlib.nullcontext()
        strategy, dtype = self.strategy, self.model.dtype_policy.name
        return Session(
            self.directory, _step(self.model), strategy.replicas, strategy.several, dtype
        )

    def _should_stop(self):
        """Whether patience or time has run out."""
        scores = [row["val_bleu"] for row in self.progress["history"] if "val_bleu" in row]
        since_best = len(scores) - 1 - scores.index(max(scores)) if scores else 0
        impatient = self.recipe.patience and since_best >= self.recipe.patience
        return bool(impatient) or (bool(scores) and self._out_of_time())

    def _out_of_time(self):
        minutes = self.recipe.max_minutes
        return bool(minutes) and self.strategy.chiefs(self.clock()) > 60 * minutes

    def _set_r_drop(self):
        """In its epochs every batch holds its rows twice, and the loss compares the two."""
        recipe, loss = self.recipe, self.model.loss
        weight = recipe.r_drop if self.progress["epoch"] >= recipe.r_drop_from else 0.0
        if weight == loss.r_drop:
            return
        loss.r_drop = weight
        self.train.passes = self.model.passes = 2 if weight else 1
        # The step was traced with the weight that was.
        with self.strategy.scope():
            self.model.make_train_function(force=True)

    def _train_epoch(self):
        """The rest of the epoch; what to log of it."""
        recipe, progress, epoch = self.recipe, self.progress, self.progress["epoch"]
        self._set_r_drop()
        first, batches = progress["batch"], len(self.train)
        tokens = self.train.tokens(epoch, first)
        epochs = recipe.epochs
        before = progress["fit"] if first else None
        bar = EpochProgress(epoch + 1, epochs, batches, first, tokens, self.console, before)
        if first < batches:
            with bar.shown():
                # The bar first: it refuses a NaN before the keeper could save it.
                self.model.fit(
                    self.strategy.dataset(self.train, epoch, first),
                    steps_per_epoch=batches - first,
                    initial_epoch=epoch,
                    epochs=epoch + 1,
                    verbose=0,
                    shuffle=False,
                    callbacks=[bar, _Keeper(self, bar)],
                )
            # Killed from here on, the run goes on with the validation.
            self._save()
        return {"epoch": epoch + 1, "step": _step(self.model), **progress["fit"]}

    def _validate(self, row):
        """The figures of the validation; publishes the model if it is the best so far."""
        self.say(f"epoch {row['epoch']}: validating ...")
        figures = self.validation.figures()
        score, best = figures["val_bleu"], self.progress["best"]
        if best is None or score > best["val_bleu"]:
            self.progress["best"] = {"epoch": row["epoch"], "val_bleu": score}
            self._publish(self.progress["best"])
        return figures

    def _publish(self, training, weights=None):
        """The run directory, with a few texts that show what it is asked."""
        if not self.strategy.is_chief:
            return
        training = {**training, "val_bleu_signature": self.validation.signature}
        training["examples"] = self.validation.sources[:EXAMPLES]
        run.save(self.directory, self.model, self.tokenizer, self.search, training, weights)
        update_card(self.directory, self.say)

    def _validate_last(self):
        """Validates the last epoch, if it was not known to be the last when it ended."""
        row = self.progress["history"][-1]
        if "val_bleu" not in row:
            row.update(self._validate(row))
            if self.strategy.is_chief:
                self._write_epoch(row["epoch"])
            self._save()

    def _finish_epoch(self, row):
        """Logs the epoch, keeps its weights, and steps into the next."""
        progress = self.progress
        row["seconds"] = round(self.clock(), 1)
        for name, value in row.items():
            tf.summary.scalar(name, value, step=row["step"])
        progress["history"].append(row)
        line = (
            f"epoch {row['epoch']}/{self.recipe.epochs}: loss {row['loss']:.3f}, "
            f"accuracy {100 * row['accuracy']:.1f} %, {row['tokens_per_second']:,.0f} tokens/s"
        )
        if "val_bleu" in row:
            line += (
                f"; validation: loss {row['val_loss']:.3f}, perplexity "
                f"{row['val_perplexity']:.2f}, greedy BLEU {row['val_bleu']:.2f}"
            )
        self.say(line)
        if self.strategy.is_chief:
            self._write_epoch(row["epoch"])
        progress["epoch"], progress["batch"] = row["epoch"], 0
        self._save()

    def _write_epoch(self, epoch):
        """The curves so far, and the weights behind the epoch, to average."""
        history = self.progress["history"]
        write_history(self.directory, history)
        if self.progress["best"]:
            write_curve(self.directory / "curve.png", history)
        self.epoch_weights.write(epoch, run.model_weights(self.model))

    def _average(self):
        """Tries the mean of the last epochs' weights, and publishes it if it is better."""
        last = self.progress["epoch"]
        epochs = self.epoch_weights.epochs(last)
        best = self.progress["best"]
        # A worker may see later what the chief has written.
        if self.strategy.chiefs(len(epochs)) < 2 or self.progress.get("averaged") == last:
            return
        own = mean = run.model_weights(self.model)
        if self.strategy.is_chief:
            mean = self.epoch_weights.mean(epochs)
        run.set_weights(self.model, mean)
        score = self.validation.bleu()
        run.set_weights(self.model, own)
        self.say(
            f"average of the last {len(epochs)} epochs: greedy BLEU {score:.2f} "
            f"(best so far: {best['val_bleu']:.2f})"
        )
        if score > best["val_bleu"]:
            self.progress["best"] = {"average_of_epochs": epochs, "val_bleu": score}
            self._publish(self.progress["best"], mean)
        self.progress["averaged"] = last
        self._save()

    def _save(self):
        self.progress["seconds"] = self.clock()
        try:
            checkpoint.save(self.last, self.model, self.progress, self.strategy.is_chief)
        except checkpoint.NotFinite as error:
            raise Diverged(f"{error} at step {_step(self.model)}") from error
        if self.session:
            self.session.record(_step(self.model))
            update_card(self.directory, self.say)

    def obey_signal(self):
        """Ends the training if SIGINT or SIGTERM has asked any worker for it."""
        if self.strategy.any(self.stop_signal):
            raise Interrupted(self.stop_signal or signal.SIGTERM)

    @contextlib.contextmanager
    def _signals(self):
        """SIGINT and SIGTERM end the training behind the batch that is being computed."""

        def stop(number, frame):
            self.stop_signal = number

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _step(model):
    return int(keras.ops.convert_to_numpy(model.optimizer.iterations))


class _Keeper(keras.callbacks.Callback):
    """Inside an epoch: counts batches, saves now and then, and obeys signals."""

    def __init__(self, training, bar):
        super().__init__()
        self.training, self.bar = training, bar
        # `fit` resets the metrics when an epoch begins; one that goes on has some already.
        self.metrics = None
        if training.progress["batch"]:
            self.metrics = [v.numpy() for v in training.model.metrics_variables]

    def on_epoch_begin(self, epoch, logs=None):
        if self.metrics:
            for variable, value in zip(self.model.metrics_variables, self.metrics, strict=True):
                variable.assign(value)

    def on_train_batch_begin(self, batch, logs=None):
        # Workers have to stop behind the same step, so a step tells them all.
        if self.training.strategy.several and self.training.stop_signal:
            self.model.stop.assign(1.0)

    def on_train_batch_end(self, batch, logs=None):
        training = self.training
        training.progress["batch"] += 1
        # A checkpoint behind the last batch has to know what the epoch came to.
        training.progress["fit"] = self.bar.row()
        stop = logs["stop"] if training.strategy.several else training.stop_signal
        if stop or training.progress["batch"] % training.recipe.checkpoint_steps == 0:
            training._save()
        if stop:
            raise Interrupted(training.stop_signal or signal.SIGTERM)
