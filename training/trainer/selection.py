"""Selects the model of a run directory: that of the best epoch, or the mean of the last ones."""

from tfformer import run
from tfformer.files import write_json

from ..report.card import update_card

# Texts of the validation corpus that a run stores.
EXAMPLES = 32


class Selection:
    """Measures the model after an epoch and publishes the best one so far.

    Args:
        state: a `State`; its directory is the run's, its progress has the best so far.
        search: keyword arguments of the model's service, stored in the run.
    """

    def __init__(self, state, validation, epoch_weights, tokenizer, search):
        self.state, self.validation, self.task = state, validation, validation.task
        self.epoch_weights, self.tokenizer, self.search = epoch_weights, tokenizer, search

    def validate(self, epoch):
        """Returns the figures of the model after an epoch; publishes it if it is the best."""
        self.state.say(f"epoch {epoch}: validating ...")
        figures = self.validation.figures()
        for line in self.validation.shown():
            self.state.say(line)
        score, best = figures[self.task.figure], self.state.progress["best"]
        if best is None or self.task.better(score, best[self.task.figure]):
            self._publish({"epoch": epoch, self.task.figure: score})
        return figures

    def since_best(self):
        """The number of validations after the best one; None if there was no validation."""
        history = self.state.progress["history"]
        scores = [row[self.task.figure] for row in history if self.task.figure in row]
        return len(scores) - 1 - self.task.best(scores) if scores else None

    def average(self):
        """Evaluates the mean of the last epochs' weights, and publishes it if it is better."""
        progress, model, task = self.state.progress, self.state.model, self.task
        last = progress["epoch"]
        epochs = self.epoch_weights.epochs(last)
        # Another worker may see the chief's files later.
        if self.state.strategy.chiefs(len(epochs)) < 2 or progress.get("averaged") == last:
            return
        own = mean = run.model_weights(model)
        if self.state.strategy.is_chief:
            mean = self.epoch_weights.mean(epochs)
        run.set_weights(model, mean)
        score = self.validation.score()
        run.set_weights(model, own)
        best = progress["best"][task.figure]
        title, form = task.columns[task.figure]
        self.state.say(
            f"average of the last {len(epochs)} epochs: {title} {form.format(score)} "
            f"(best so far: {form.format(best)})"
        )
        if task.better(score, best):
            self._publish({"average_of_epochs": epochs, task.figure: score}, mean)
        progress["averaged"] = last
        self.state.save()

    def update_search(self):
        """Stores changed search settings of a resumed run, so its model is served with them."""
        path = self.state.directory / "config.json"
        if self.state.strategy.is_chief and path.exists():
            config = run.read_config(path.parent)
            if config["search"] != self.search:
                write_json(path, config | {"search": self.search})

    def _publish(self, best, weights=None):
        """Writes the model to the run directory, with a few validation texts as examples."""
        state = self.state
        state.progress["best"] = best
        if not state.strategy.is_chief:
            return
        training = {**best, f"{self.task.figure}_signature": self.validation.signature}
        training["examples"] = self.validation.sources[:EXAMPLES]
        training["references"] = self.validation.references[:EXAMPLES]
        run.save(state.directory, state.model, self.tokenizer, self.search, training, weights)
        update_card(state.directory, state.say)
