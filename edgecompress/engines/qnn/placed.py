"""What the HTP takes, as Qualcomm's compiler answered: written by scripts/htp_table.py."""

from __future__ import annotations

from collections.abc import Mapping

from edgecompress.core.operations import words

COMPILER = "QNN 2.51.0 (onnxruntime-qnn 2.7.0)"
# Words of operators, and types of ONNX, that it was asked
WORDS = words(
    "abs adaptivemaxpool adaptivepool add argmax atan attention averagepool batchnorm ceil celu clip comparison "
    "concat conv conv3d conv_depthwise conv_grouped convtranspose cos cumsum depthtospace div elu embedding equal "
    "erf exp expand flip floor gather gelu globalaveragepool glu gridsample groupnorm gru hardsigmoid hardswish "
    "hardtanh indexput instancenorm layernorm leakyrelu linear logsoftmax logsumexp lstm matmul maximum maxpool "
    "maxpool_pad minimum mish mod mul neg norm pad pad_edge pad_reflect planemean pow prelu reducemax reducemean "
    "reducemin reduceprod reducesum relu relu1 relu6 reshape resize_bilinear resize_cubic resize_nearest rmsnorm "
    "roll round select selu sigmoid sign silu sin slice slice_step softmax softplus sort spacetodepth split stack "
    "sub tanh tile topk transpose trilu unfold var where"
)
TYPES = words(
    "Abs Add ArgMax Atan AveragePool BatchNormalization Ceil Celu Clip Concat Conv ConvTranspose Cos CumSum "
    "DepthToSpace Div Elu Equal Erf Exp Expand Floor GRU Gather GatherND Gelu Greater GridSample HardSigmoid "
    "HardSwish InstanceNormalization LSTM LayerNormalization LeakyRelu LogSoftmax MatMul Max MaxPool Min Mish Mul "
    "Neg PRelu Pad Pow Reciprocal ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
    "Relu Reshape Resize Round ScatterND Selu Sigmoid Sign Sin Slice Softmax Softplus Split Sqrt Sub Tanh Tile "
    "TopK Transpose Trilu Unsqueeze Where"
)
# Those that it left, in no precision but what is named
WORDS_LEFT: Mapping[str, frozenset[str]] = {
    "fp16": words("celu reduceprod spacetodepth trilu unfold"),
    "int8": words("celu reduceprod spacetodepth trilu unfold"),
    "int8-a16": words("celu reduceprod spacetodepth trilu unfold"),
}
TYPES_LEFT: Mapping[str, frozenset[str]] = {
    "fp16": words("Celu ReduceProd Trilu"),
    "int8": words("Celu ReduceProd Trilu"),
    "int8-a16": words("Celu ReduceProd Trilu"),
}
