"""The language of the words in pictures: English, or Chinese."""

CHINESE = {
    # Attention.
    "head {}": "第 {} 个头",
    "layer {}": "第 {} 层",
    "layer {}, head {}": "第 {} 层第 {} 个头",
    "share of the attention": "注意力的份额",
    "query": "查询",
    "key": "键",
    "source": "源句",
    "written next": "接下来写的",
    "read so far": "已经读到的",
    "encoder: what each head attends to": "编码器：每个头在看什么",
    "decoder: what each head attends to": "解码器：每个头在看什么",
    "cross: what each head attends to": "交叉注意力：每个头在看什么",
    # Masks.
    "encoder: padding": "编码器：填充",
    "decoder: padding": "解码器：填充",
    "decoder: the future": "解码器：未来",
    "decoder: both": "解码器：两者",
    "cross-attention: padding": "交叉注意力：填充",
    # Positions.
    "positions": "位置",
    "position": "位置",
    "dimension, of {}": "维度，共 {} 维",
    "the vector of each position": "每个位置的向量",
    "value": "值",
    "from position {}": "相对于位置 {}",
    "distance": "距离",
    "dot product": "点积",
    "how alike two positions are": "两个位置有多相似",
    # Probabilities.
    "piece of the translation": "译文的子词",
    "probability": "概率",
    "log P of all of it: {:.2f}": "整句的 log P：{:.2f}",
    "target": "目标分布",
    "learned": "学到的",
    "piece": "子词",
    # A beam search.
    "beam search": "集束搜索",
    "begin": "开始",
    "beam": "束",
    "step; below each piece its score": "步；每个子词下面是它的分数",
    "chosen": "选中",
    "went on, or ended": "继续或结束",
    "cut": "剪掉",
    # A training.
    "learning rate": "学习率",
    "loss, nats a token": "损失，每个 token 的 nat 数",
    "training": "训练",
    "validation": "验证",
    "step": "步",
    "epoch": "轮",
    "BLEU (greedy)": "BLEU（贪心）",
    # The architecture.
    "source ids": "源句的 id",
    "target ids": "目标句的 id",
    "text ids": "文本的 id",
    "bos and text ids": "bos 和文本的 id",
    "embedding of {:,} ids": "{:,} 个 id 的词嵌入",
    "+ type of each token": "+ 每个 token 的类型",
    "+ sinusoidal positions": "+ 正弦位置",
    "+ learned positions": "+ 可学习的位置",
    "self-attention": "自注意力",
    "masked self-attention": "带掩码的自注意力",
    "cross-attention": "交叉注意力",
    "{} heads of {}": "{} 个头，各 {} 维",
    ", {} of keys": "，键和值 {} 个头",
    ", rotary": "，旋转位置",
    ", alibi": "，ALiBi",
    ", relative": "，相对位置",
    "RMSNorm of queries and keys": "查询和键的 RMSNorm",
    "feed-forward": "前馈",
    "{}, {:,} wide": "{}，宽 {:,}",
    "memory": "编码器的输出",
    "memory: keys, values": "编码器的输出：键、值",
    "upsampling to T = {} S": "上采样到 T = {} S",
    "linear to {:,} logits": "线性层：{:,} 个 logits",
    "linear to {:,} labels": "线性层：{:,} 个标签",
    "linear to start and end": "线性层：开始和结束",
    "softmax over positions": "各位置上的 softmax",
    "sigmoid of each label": "每个标签的 sigmoid",
    "pooling: {}": "池化：{}",
    "dense layer and norm": "全连接层和归一化",
    "dense layer, {}": "全连接层，{}",
    "divided by its length": "除以自身的长度",
}
WORDS = {"en": {}, "zh": CHINESE}  # {language: its words by the English ones}
_chosen = {}


def choose(language):
    """From now on, pictures are in this language of `WORDS`."""
    if language not in WORDS:
        raise ValueError(f"language must be one of {list(WORDS)}, got {language!r}")
    _chosen.clear()
    _chosen.update(WORDS[language])


def word(text, *values):
    """A text of a picture in the chosen language, if that has it. Values fill its {}."""
    found = _chosen.get(text, text)
    return found.format(*values) if values else found
