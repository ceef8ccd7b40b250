"""The training loop that finetune, distill and qat share."""
