"""What a decoder takes: parameters, operations and bytes as sums of terms with their formulas.

In all formulas s is the sequence length, h the hidden size, a the number of heads, d their width, k
the heads of keys and values, f the width of the feed-forward layer and g its matrices (2, gated 3),
V the vocabulary, t the tensor and c the context parallelism. Of blocks with experts E is their
number, K the experts of a token, S the shared ones, x their width and e the expert parallelism.
Latent attention has the ranks q of queries and r of keys and values, and p positions of a head.
Amounts are of one sample, and 2-byte activations and parameters are meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ppsolve.models.studies.plan.sizes import Sizes


@dataclass(frozen=True)
class Term:
    """A part of an estimate: its formula, and what that amounts to."""

    name: str
    formula: str
    amount: float


Terms = tuple[Term, ...]


def total(terms: Terms) -> float:
    """Return the sum of terms."""
    return sum(term.amount for term in terms)


def attention_weights(sizes: Sizes) -> Term:
    """Return the matrices of attention; latent ones as in DeepSeek-V2 (2405.04434, section 2.1)."""
    h, d, heads = sizes.hidden, sizes.head_width, sizes.heads
    if sizes.kv_rank:
        q, r, p = sizes.query_rank, sizes.kv_rank, sizes.rope_dim
        amount = h * (q + r + p) + q * heads * (d + p) + 2 * r * heads * d
        formula = "h (q + r + p) + q a (d + p) + 2 r a d + a d h"
        return Term("attention", formula, amount + heads * d * h)
    return Term("attention", "2 h d (a + k)", 2 * h * (heads * d + sizes.kv_width))


def attention_pairs(sizes: Sizes) -> Term:
    """Return the operations on pairs of tokens: the scores, and the values that they weigh."""
    s, width = sizes.sequence_length, sizes.heads * sizes.head_width
    if sizes.kv_rank:
        positions = sizes.heads * sizes.rope_dim
        return Term("scores", "2 s^2 a (2 d + p)", 2 * s * s * (2 * width + positions))
    return Term("scores", "4 s^2 a d", 4 * s * s * width)


def _matrices(sizes: Sizes) -> int:
    return 3 if sizes.gated else 2


def expert_weights(sizes: Sizes) -> Term:
    """Return the matrices of all experts that a router chooses from."""
    amount = sizes.experts * _matrices(sizes) * sizes.hidden * sizes.expert_width
    return Term("experts", "E g h x", amount)


def _common_weights(sizes: Sizes, *, has_experts: bool) -> Terms:
    # Matrices that every token passes.
    h, matrices = sizes.hidden, _matrices(sizes)
    if not has_experts:
        feed_forward = matrices * h * sizes.feed_forward
        return attention_weights(sizes), Term("feed-forward", "g h f", feed_forward)
    shared = sizes.shared_experts * matrices * h * sizes.expert_width
    return (
        attention_weights(sizes),
        Term("shared experts", "S g h x", shared),
        Term("router", "h E", h * sizes.experts),
    )


def _vectors(sizes: Sizes, *, has_experts: bool) -> Terms:
    h = sizes.hidden
    if sizes.kv_rank:
        amount = 2 * h + sizes.query_rank + sizes.kv_rank
        return (Term("norms", "2 h + q + r", amount),)
    if sizes.gated:
        return (Term("norms", "2 h", 2 * h),)
    attention = sizes.heads * sizes.head_width + 2 * sizes.kv_width + h
    norms = Term("norms", "4 h", 4 * h)
    biases = Term("attention biases", "d (a + 2 k) + h", attention)
    if has_experts:
        return norms, biases
    return norms, biases, Term("feed-forward biases", "f + h", sizes.feed_forward + h)


def block_parameters(sizes: Sizes, *, has_experts: bool = False) -> Terms:
    """Return those of a block: 12 h^2 + 13 h of GPT (Narayanan et al. 2021, section 5.1)."""
    terms = _common_weights(sizes, has_experts=has_experts)
    if has_experts:
        terms += (expert_weights(sizes),)
    return terms + _vectors(sizes, has_experts=has_experts)


def embedding_parameters(sizes: Sizes) -> Terms:
    """Return the parameters before the first block: words, and learned positions."""
    h = sizes.hidden
    words = Term("words", "V h", sizes.vocabulary * h)
    if sizes.gated:
        return (words,)
    return words, Term("positions", "s h", sizes.sequence_length * h)


def head_parameters(sizes: Sizes) -> Terms:
    """Return the parameters behind the last block, with a matrix of words of its own.

    The last stage of a pipeline has one even where it is the embedding's.
    """
    h, norm = sizes.hidden, 1 if sizes.gated else 2
    words = Term("words", "V h", sizes.vocabulary * h)
    return words, Term("norm", "h" if norm == 1 else "2 h", norm * h)


def all_parameters(sizes: Sizes, *, active: bool = False) -> int:
    """Return the parameters of the whole model, or those that are active for a token."""
    idle = 0
    if active and sizes.experts:
        share = 1 - sizes.experts_per_token / sizes.experts
        idle = round(expert_weights(sizes).amount * share)
    blocks = sum(
        count * (total(block_parameters(sizes, has_experts=experts)) - experts * idle)
        for experts, count in sizes.block_kinds.items()
    )
    return round(
        total(embedding_parameters(sizes)) + blocks + total(head_parameters(sizes))
    )


def block_operations(sizes: Sizes, *, has_experts: bool = False) -> dict[str, Terms]:
    """Return the operations of a block by field of a layer, for one sample.

    A forward takes two per token and weight, and those of pairs of tokens: 24 s h^2 + 4 s^2 h of
    GPT (Narayanan et al. 2021, appendix). The backward takes twice that; scores have no weights, so
    that twice theirs belongs to the input gradient (Qi et al. 2023, table 1). What is recomputed
    belongs to it too: the scores (selective) or the forward.
    """
    s = sizes.sequence_length
    weights = _common_weights(sizes, has_experts=has_experts)
    if has_experts:
        active = sizes.experts_per_token * _matrices(sizes) * sizes.hidden
        weights += (Term("experts", "K g h x", active * sizes.expert_width),)
    products = tuple(
        Term(term.name, f"2 s ({term.formula})", 2 * s * term.amount)
        for term in weights
    )
    pairs = attention_pairs(sizes)
    again = {"none": (), "selective": (pairs,), "full": (*products, pairs)}
    twice = Term(pairs.name, f"2 ({pairs.formula})", 2 * pairs.amount)
    recomputed = tuple(
        Term(f"{term.name} again", term.formula, term.amount)
        for term in again[sizes.recompute]
    )
    return {
        "forward": (*products, pairs),
        "backward_input": (*products, twice, *recomputed),
        "backward_weight": products,
    }


def head_operations(sizes: Sizes) -> dict[str, Terms]:
    """Return the operations of the logits: 2 s h V, and as many for each gradient (Narayanan)."""
    operations = 2 * sizes.sequence_length * sizes.hidden * sizes.vocabulary
    terms = (Term("logits", "2 s h V", operations),)
    return dict.fromkeys(("forward", "backward_input", "backward_weight"), terms)


def block_activations(sizes: Sizes, *, has_experts: bool = False) -> Terms:
    """Return the bytes that a block keeps on a device, for one sample.

    Those of GPT are s h (10 + 24/t + 5 a s / (h t)) with tensor parallelism, over t all of it with
    sequence parallelism too (Korthikanti et al. 2022, table 2); without dropout its masks and the
    dropped scores are not there. Selective recomputation drops the scores, full recomputation keeps
    the input alone, 2 s h. Context parallelism keeps 1/c of everything.
    """
    s, h = sizes.sequence_length / sizes.context_parallel, sizes.hidden
    if sizes.recompute == "full":
        whole: Terms = (Term("input", "2 s h", 2 * s * h),)
        return tuple(_divided(sizes, whole, ()))
    masks, factor, scores = ("", 8, 2) if sizes.gated else (", masks", 10, 5)
    whole = (Term(f"inputs{masks}", f"{factor} s h", factor * s * h),)
    split = _kept_products(sizes, s, has_experts=has_experts)
    if has_experts:
        sent = 4 * s * h * sizes.experts_per_token
        whole += (Term("tokens of experts", "4 s h K", sent),)
    heads = sizes.heads
    if sizes.flash_attention:
        split += (Term("sums of scores", "4 a s", 4 * heads * s),)
    elif sizes.recompute == "none":
        pairs = scores * heads * s * sizes.sequence_length
        split += (Term("scores", f"{scores} a s^2", pairs),)
    return tuple(_divided(sizes, whole, split))


def _kept_products(sizes: Sizes, s: float, *, has_experts: bool) -> Terms:
    # What tensor parallelism shares out: queries, keys, values, and widths of feed-forward layers.
    width, kept = sizes.heads * sizes.head_width, 6 if sizes.gated else 4
    if sizes.kv_rank:
        amount = 2 * s * (4 * width + 2 * sizes.heads * sizes.rope_dim)
        attention = Term("attention", "2 s a (4 d + 2 p)", amount)
    else:
        amount = 4 * s * (width + sizes.kv_width)
        attention = Term("attention", "4 s d (a + k)", amount)
    if not has_experts:
        amount = kept * s * sizes.feed_forward
        return attention, Term("feed-forward", f"{kept} s f", amount)
    passed = sizes.experts_per_token + sizes.shared_experts
    amount = kept * s * passed * sizes.expert_width
    return attention, Term("experts", f"{kept} s x (K + S)", amount)


def _divided(sizes: Sizes, whole: Terms, split: Terms) -> Iterator[Term]:
    t, context = sizes.tensor_parallel, " / c" if sizes.context_parallel > 1 else ""
    shared = " / t" if t > 1 else ""
    for terms, is_split in ((whole, sizes.sequence_parallel), (split, True)):
        for term in terms:
            divisor, text = (t, shared) if is_split else (1, "")
            formula = f"{term.formula}{text}{context}"
            yield Term(term.name, formula, term.amount / divisor)


def embedding_activations(sizes: Sizes) -> Terms:
    """Return the bytes that the embedding keeps: its mask (Korthikanti et al., section 4.3)."""
    if sizes.gated:
        return ()
    s = sizes.sequence_length / sizes.context_parallel
    return tuple(_divided(sizes, (Term("mask", "s h", s * sizes.hidden),), ()))


def head_activations(sizes: Sizes) -> Terms:
    """Return the bytes that the head keeps: inputs of norm and logits, and logits in 32 bits."""
    s, h = sizes.sequence_length / sizes.context_parallel, sizes.hidden
    inputs = Term("inputs", "4 s h", 4 * s * h)
    logits = Term("logits", "4 s V", 4 * s * sizes.vocabulary)
    return tuple(_divided(sizes, (inputs,), (logits,)))
