# SPDX-License-Identifier: MIT
"""Small networks of transformers, built from configurations, for onnx_matrix.py."""
from typing import Callable, Dict

import torch
import transformers as hf
from torch import nn

from onnx_network import Network, image, tokens

VOCABULARY = 40
# No tokens of padding: PyTorch gives rows of padding_idx no gradient, and files cannot say so.
TEXT = tokens(8, VOCABULARY, low=2)
SMALL = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2,
         "num_attention_heads": 2, "intermediate_size": 32}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
BERT = {**SMALL, **NO_DROPOUT, "max_position_embeddings": 24, "num_labels": 3}
LLAMA = {**SMALL, "num_key_value_heads": 1, "max_position_embeddings": 32, "use_cache": False,
         "pad_token_id": 0, "attention_dropout": 0.0}


class Logits(nn.Module):
    """A model of transformers with tensors in and one tensor out."""

    def __init__(self, model: nn.Module, *names: str, output: str = "logits") -> None:
        super().__init__()
        self.model, self.names, self.output = model, names or ("input_ids",), output

    def forward(self, first: torch.Tensor) -> torch.Tensor:
        return self.run(first)

    def run(self, *tensors: torch.Tensor) -> torch.Tensor:
        return getattr(self.model(**dict(zip(self.names, tensors))), self.output)


class Masked(Logits):
    """With the mask of a text without padding, as tokenizers give it."""

    def forward(self, first: torch.Tensor) -> torch.Tensor:
        return self.model(first, attention_mask=torch.ones_like(first)).logits


class Logits2(Logits):
    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return self.run(first, second)


class MaskedDecoder(Logits):
    """The same for what a decoder writes."""

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return self.model(first, decoder_input_ids=second,
                          decoder_attention_mask=torch.ones_like(second)).logits


def classifier(config: str, model: str, **how) -> Callable[[], nn.Module]:
    return lambda: Logits(getattr(hf, model)(getattr(hf, config)(**{**BERT, **how})))


def causal(name: str, wrap=Masked, **how) -> Callable[[], nn.Module]:
    model = name + ("LMHeadModel" if name == "GPT2" else "ForCausalLM")
    return lambda: wrap(getattr(hf, model)(getattr(hf, name + "Config")(**how)))


def masked(n: int) -> Dict[str, torch.Tensor]:
    """Tokens of texts of several lengths, and the mask that says how long they are."""
    lengths = torch.randint(4, 11, (n, 1))
    mask = (torch.arange(10)[None] < lengths).long()
    return {"input_ids": torch.randint(2, VOCABULARY, (n, 10)) * mask, "attention_mask": mask}


def pair(n: int) -> Dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(2, VOCABULARY, (n, 8)),
            "decoder_input_ids": torch.randint(2, VOCABULARY, (n, 6))}


def t5() -> hf.T5Config:
    return hf.T5Config(vocab_size=VOCABULARY, d_model=16, d_kv=8, d_ff=32, num_layers=2,
                       num_heads=2, dropout_rate=0.0, use_cache=False, decoder_start_token_id=0,
                       attn_implementation="eager")  # the exporter fails on T5's other one


def bart() -> hf.BartConfig:
    return hf.BartConfig(vocab_size=VOCABULARY, d_model=16, encoder_layers=1, decoder_layers=1,
                         encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32,
                         decoder_ffn_dim=32, dropout=0.0, attention_dropout=0.0,
                         activation_dropout=0.0, max_position_embeddings=24, use_cache=False)


def whisper() -> hf.WhisperConfig:
    return hf.WhisperConfig(vocab_size=VOCABULARY, d_model=16, encoder_layers=1, decoder_layers=1,
                            encoder_attention_heads=2, decoder_attention_heads=2,
                            encoder_ffn_dim=32, decoder_ffn_dim=32, num_mel_bins=8,
                            max_source_positions=12, max_target_positions=12, dropout=0.0,
                            use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                            decoder_start_token_id=1)


def sound(n: int) -> Dict[str, torch.Tensor]:
    return {"input_features": torch.randn(n, 8, 24),
            "decoder_input_ids": torch.randint(3, VOCABULARY, (n, 6))}


class ZeroShot(nn.Module):
    """CLIP as a classifier: texts of five classes in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        text = {**SMALL, "max_position_embeddings": 12, "eos_token_id": 1, "bos_token_id": 0}
        vision = {**SMALL, "image_size": 16, "patch_size": 4}
        vision.pop("vocab_size")
        self.clip = hf.CLIPModel(hf.CLIPConfig(text_config=text, vision_config=vision,
                                               projection_dim=8))
        self.register_buffer("texts", torch.randint(2, VOCABULARY, (5, 8)))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.clip(input_ids=self.texts, pixel_values=images).logits_per_image


VISION = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
          "intermediate_size": 32, "image_size": 16, "patch_size": 4, "num_labels": 5,
          **NO_DROPOUT}


def segformer() -> nn.Module:
    config = hf.SegformerConfig(
        num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[8, 16],
        patch_sizes=[3, 3], strides=[2, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2],
        decoder_hidden_size=16, classifier_dropout_prob=0.0, drop_path_rate=0.0, num_labels=3,
        **NO_DROPOUT)
    return Logits(hf.SegformerForSemanticSegmentation(config), "pixel_values")


def bert(make, inputs=TEXT, lr: float = 0.1) -> Network:
    return Network("bert", make, inputs, "cross-entropy", lr)


def gpt(make, inputs=TEXT, lr: float = 0.5) -> Network:
    return Network("gpt", make, inputs, "cross-entropy", lr)


NETWORKS: Dict[str, Network] = {
    "bert": bert(classifier("BertConfig", "BertForSequenceClassification")),
    "bert_attention_mask": bert(lambda: Logits2(hf.BertForSequenceClassification(
        hf.BertConfig(**BERT)), "input_ids", "attention_mask"), masked),
    "bert_masked_lm": bert(classifier("BertConfig", "BertForMaskedLM"), lr=0.5),
    "roberta": bert(classifier("RobertaConfig", "RobertaForSequenceClassification",
                               pad_token_id=1)),
    "albert": bert(classifier("AlbertConfig", "AlbertForSequenceClassification",
                              embedding_size=8, classifier_dropout_prob=0.0)),
    "distilbert": bert(lambda: Logits(hf.DistilBertForSequenceClassification(hf.DistilBertConfig(
        vocab_size=VOCABULARY, dim=16, n_layers=2, n_heads=2, hidden_dim=32, dropout=0.0,
        attention_dropout=0.0, seq_classif_dropout=0.0, max_position_embeddings=24,
        num_labels=3)))),
    "electra": bert(classifier("ElectraConfig", "ElectraForSequenceClassification",
                               embedding_size=8)),
    "deberta": bert(classifier("DebertaConfig", "DebertaForSequenceClassification",
                               relative_attention=True, pos_att_type=["c2p", "p2c"],
                               max_relative_positions=12, pooler_dropout=0.0)),
    "deberta_v2": bert(classifier("DebertaV2Config", "DebertaV2ForSequenceClassification",
                                  relative_attention=True, pos_att_type=["c2p", "p2c"],
                                  position_buckets=4, max_relative_positions=12,
                                  pooler_dropout=0.0)),
    "mobilebert": bert(classifier("MobileBertConfig", "MobileBertForSequenceClassification",
                                  embedding_size=8, intra_bottleneck_size=8,
                                  num_feedforward_networks=2), lr=0.05),
    "mpnet": bert(classifier("MPNetConfig", "MPNetForSequenceClassification")),
    "squeezebert": bert(classifier("SqueezeBertConfig", "SqueezeBertForSequenceClassification",
                                   embedding_size=16, q_groups=2, k_groups=2, v_groups=2,
                                   post_attention_groups=1, intermediate_groups=2,
                                   output_groups=2)),
    "gpt2": gpt(causal("GPT2", vocab_size=VOCABULARY, n_positions=16, n_embd=16, n_layer=2,
                       n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                       use_cache=False)),
    "gpt_neox": gpt(causal("GPTNeoX", **SMALL, max_position_embeddings=16, use_cache=False)),
    "opt": gpt(causal("OPT", Logits, vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2,
                      num_attention_heads=2, ffn_dim=32, max_position_embeddings=16, dropout=0.0,
                      word_embed_proj_dim=16, use_cache=False)),
    "llama": gpt(causal("Llama", **LLAMA)),
    "mistral": gpt(causal("Mistral", **LLAMA, sliding_window=4)),
    "qwen2": gpt(causal("Qwen2", Logits, **LLAMA)),
    "phi": gpt(causal("Phi", **{**LLAMA, "num_key_value_heads": 2})),
    "gemma": gpt(causal("Gemma", **LLAMA, head_dim=8)),
    "bloom": gpt(causal("Bloom", vocab_size=VOCABULARY, hidden_size=16, n_layer=2, n_head=2,
                        hidden_dropout=0.0, attention_dropout=0.0, use_cache=False)),
    "falcon": gpt(causal("Falcon", vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2,
                         num_attention_heads=2, use_cache=False)),
    "t5_encoder": gpt(lambda: Logits(hf.T5EncoderModel(t5()), output="last_hidden_state")),
    "t5": gpt(lambda: Logits2(hf.T5ForConditionalGeneration(t5()), "input_ids",
                              "decoder_input_ids"), pair),
    "bart": gpt(lambda: Logits2(hf.BartForConditionalGeneration(bart()), "input_ids",
                                "decoder_input_ids"), pair),
    "whisper": gpt(lambda: MaskedDecoder(hf.WhisperForConditionalGeneration(whisper())), sound),
    "clip": Network("vit", ZeroShot, image(3, 16), "cross-entropy", 0.02),
    "hf_vit": Network("vit", lambda: Logits(hf.ViTForImageClassification(hf.ViTConfig(**VISION)),
                                            "pixel_values"), image(3, 16)),
    "hf_dinov2": Network("vit", lambda: Logits(hf.Dinov2ForImageClassification(
        hf.Dinov2Config(**VISION)), "pixel_values"), image(3, 16)),
    "segformer": Network("unet", segformer, image(3, 16), "mse", 0.5),
}
