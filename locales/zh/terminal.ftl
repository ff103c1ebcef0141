# 终端里的课程。
terminal-run-one = 运行其中一课：holdfast lesson NAME
terminal-page = 本次运行的全部细节：{ $page }
terminal-sample = { $strategy }：售出 { $sold }，库存 { $stock }，超卖 { $oversold }，等待 { $waiting }
terminal-contradicts = 与结论矛盾
terminal-shown = 已证实：{ $verdict }
terminal-not-shown = 未证实：{ $verdict }
terminal-failed = 运行失败：{ $verdict }
terminal-next = 下一课：holdfast lesson { $name }
terminal-opening = 期初库存
terminal-sound = 账目相符
terminal-not-sound = 账目不符
