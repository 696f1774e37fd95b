"""When hooks are called."""

from test_train import make_training

from nnas.hooks import Hook, observed


class Diary(Hook):
    """Notes every call."""

    def __init__(self):
        self.lines = []

    def start_phase(self, phase, loop):
        self.lines.append(f"start {phase}")

    def end_phase(self, phase, loop):
        self.lines.append(f"end {phase}")

    def start_epoch(self, progress, loop):
        self.lines.append(f"start {progress.epoch}")

    def end_epoch(self, progress, loop):
        assert progress.record["epoch"] == progress.epoch
        self.lines.append(f"end {progress.epoch}")

    def start_step(self, progress, loop):
        assert progress.record is None
        self.lines.append(f"start {progress.epoch}.{progress.step}")

    def end_step(self, progress, loop):
        self.lines.append(f"end {progress.epoch}.{progress.step}")


def epoch(number, first=1, steps=4):
    lines = [f"{word} {number}.{step}" for step in range(first, steps + 1) for word in ("start", "end")]
    return [*([f"start {number}"] if first == 1 else []), *lines, f"end {number}"]


def test_a_hook_is_called_around_phase_epoch_and_step():
    diary, other = Diary(), Hook()
    for _ in observed(make_training(epochs=2), [other, diary]):
        pass
    assert diary.lines == ["start train", *epoch(1), *epoch(2), "end train"]


def test_after_a_resume_within_an_epoch_the_epoch_does_not_start_again():
    cut, other, diary = make_training(epochs=2), make_training(epochs=2), Diary()
    for number, _ in enumerate(cut, start=1):
        if number == 2:
            break
    other.restore(cut.state())
    for _ in observed(other, [diary]):
        pass
    assert diary.lines == ["start train", *epoch(1, first=3), *epoch(2), "end train"]


def test_a_loop_at_its_end_calls_nothing():
    diary = Diary()
    assert list(observed(make_training(epochs=0), [diary])) == [] and diary.lines == []
