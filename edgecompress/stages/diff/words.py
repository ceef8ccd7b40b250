"""What operators of any format are called here: the same word for the same computation."""

from __future__ import annotations

import re

FAMILIES = {  # word -> what formats call it, in lower case, letters and digits only
    "convolution": r"(depthwise|quantized|fused|group|q?linear)?conv(olution)?([123]d|integer|native)?(backpropdata)?"
    r"|groupconvolution(backpropdata)?|depthwiseconv2d(native)?|convtranspose([123]d)?|transposeconv|conv2dbackpropinput"
    r"|qlinearconv|convinteger|convolution",
    "product": r"linear|addmm|mm|bmm|baddbmm|matmul|batchmatmul(v[23])?|gemm|fullyconnected|matmulinteger|qlinearmatmul"
    r"|matmulnbits|dynamicquantizematmul|einsum|innerproduct",
    "recurrent": r"lstm(sequence|cell)?|gru(sequence|cell)?|rnn(tanh|relu)?|rnn(sequence|cell)?"
    r"|unidirectionalsequence(lstm|rnn)|dynamicquantizelstm|quantizedlstm",
    "attention": r"scaleddotproductattention(.*)|attention|multiheadattention|sdpa",
    "batch norm": r"(native)?batchnorm(legitnotraining)?(alization)?|nativebatchnormlegitnotraining|cudnnbatchnorm"
    r"|fusedbatchnorm(v[23])?|batchnorminference",
    "norm": r"(native)?layernorm(alization)?|rmsnorm(alization)?|(native)?groupnorm(alization)?"
    r"|instancenorm(alization)?|mvn|skiplayernormalization|simplifiedlayernormalization|lpnormalization|l2norm(alization)?",
    "activation": r"relu6?|relun1to1|clip|clamp(min|max)?|hardtanh|gelu|elu|selu|celu|silu|swish|mish|softplus|sigmoid"
    r"|logistic|tanh|hardswish|hswish|hardsigmoid|hsigmoid|leakyrelu|prelu|erf|thresholdedrelu|softsign",
    "softmax": r"softmax|logsoftmax|safesoftmax",
    "pool": r"(adaptive)?(global)?(avg|average|max|l2|lp)pool(ing)?([123]d)?(withindices)?(v2)?|(global)?averagepool"
    r"|qlinearaveragepool|reducemean",
    "resize": r"resize(bilinear|nearestneighbor)?|upsample(nearest|bilinear|linear|bicubic)?([123]d)?(vec)?|interpolate"
    r"|upsample(bilinear|nearestneighbor)|resizebilinear|resizenearestneighbor",
    "pad": r"pad(v2)?|mirrorpad|constantpadnd|reflectionpad[123]d|replicationpad[123]d",
    "move": r"reshape|view|unsafeview|flatten2?d?|permute|transpose|t|squeeze|unsqueeze|expanddims|identity|contiguous"
    r"|clone|alias|pack|unpack",
    "part": r"slice(bysize|byindex)?|stridedslice|split(v|withsizes)?|chunk|select|narrow|unbind|concat(v2|enation)?"
    r"|cat|stack|gather(nd)?|indexselect|index|tile|expand|broadcastto|repeat",
    "arithmetic": r"add|sub|subtract|mul|multiply|div|divide|realdiv|biasadd|rsub|addv2|addn",
    "rounding": r"quantizelinear|dequantizelinear|quantize|dequantize|fakequantize|quantizepertensor"
    r"|dequantizepertensor|dynamicquantizelinear|quantizeperchannel|dequantizeperchannel",
}
WEIGHTED = ("convolution", "product", "recurrent", "attention")
PATTERNS = {word: re.compile(rf"(?:{pattern})\Z") for word, pattern in FAMILIES.items()}


def family(kind: str) -> str:
    """The word for an operator's type, or the type itself in lower case."""
    plain = re.sub(r"[^a-z0-9]", "", kind.lower())
    return next((word for word, pattern in PATTERNS.items() if pattern.match(plain)), plain)
