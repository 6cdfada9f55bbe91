"""Hugging Face's Trainer with a small BERT (`pip install transformers accelerate`).

Run it with `python examples/huggingface_trainer.py`. The model is made from a configuration, with random weights:
nothing is downloaded.
"""

import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import bayesify as bf

EPOCHS, N = 6, 64


class BayesianTrainer(Trainer):
    """The loss of a method in the place of the model's."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        return model.loss(inputs, labels, n_data=len(self.train_dataset), step=self.state.global_step)

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        """For `evaluate` and `predict`: the NLL and the logarithms of the probabilities of the posterior predictive."""
        labels = inputs.pop("labels")
        logits = model.predict(inputs).probs.log()
        return torch.nn.functional.nll_loss(logits, labels), None if prediction_loss_only else logits, labels


def data():
    torch.manual_seed(1)
    tokens = torch.randint(5, 60, (N, 8))
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}, (tokens[:, 0] > 30).long()


def method():
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=60,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=2,
    )
    return bf.Variational(BertForSequenceClassification(config), "categorical", output="logits", bayesian="last_block")


def main():
    x, y = data()
    rows = [{**{name: part[row] for name, part in x.items()}, "labels": y[row]} for row in range(N)]
    bnn = method().train()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=EPOCHS,
            per_device_train_batch_size=N,
            max_grad_norm=1.0,
            lr_scheduler_type="constant",
            use_cpu=True,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
            dataloader_pin_memory=False,
        )
        optimizer = torch.optim.Adam(bnn.parameters(), lr=0.01)
        trainer = BayesianTrainer(bnn, arguments, train_dataset=rows, eval_dataset=rows, optimizers=(optimizer, None))
        trainer.train()
        bnn.finish((x, y))
        print(f"NLL of the predictions {trainer.evaluate()['eval_loss']:.3f}")

    same = method()
    same.fit((x, y), epochs=EPOCHS, batch_size=N, learning_rate=0.01, clip_norm=1.0, progress=False)
    difference = float((bnn.predict(x).probs - same.predict(x).probs).abs().max())
    print(f"largest difference from fit: {difference:.1e}")
    return difference


if __name__ == "__main__":
    main()
