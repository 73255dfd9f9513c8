<?php
// backend.php: answers the hooks of Fanfare, with nothing but PHP.

// Stands for your database.
const SESSIONS = [
    's1' => ['user' => 'ann', 'name' => 'Ann', 'teams' => ['team.1']],
    's2' => ['user' => 'bob', 'name' => 'Bob', 'teams' => []],
];

/** Standard Webhooks: HMAC-SHA256 of the id, the time and the raw body. */
function isSigned(string $body): bool
{
    $key = base64_decode(substr(getenv('FANFARE_HOOKS_SECRET'), strlen('whsec_')));
    $id = $_SERVER['HTTP_WEBHOOK_ID'] ?? '';
    $time = $_SERVER['HTTP_WEBHOOK_TIMESTAMP'] ?? '0';
    if (abs(time() - (int) $time) > 300) return false;
    $expected = 'v1,' . base64_encode(hash_hmac('sha256', "$id.$time.$body", $key, true));
    foreach (explode(' ', $_SERVER['HTTP_WEBHOOK_SIGNATURE'] ?? '') as $given)
        if (hash_equals($expected, $given)) return true;
    return false;
}

function mayUse(array $connection, string $room): bool
{
    return !str_starts_with($room, 'team.') || in_array($room, $connection['data']['teams'], true);
}

function onConnect(array $request): array
{
    preg_match('/(?:^|; )session=(\w+)/', $request['headers']['cookie'] ?? '', $found);
    $session = SESSIONS[$found[1] ?? ''] ?? null;
    if ($session === null) return ['deny' => 'Please log in.'];
    return [
        'user' => $session['user'],
        'info' => ['name' => $session['name']],
        'data' => ['teams' => $session['teams']],
    ];
}

function onPublish(array $connection, string $room, mixed $payload): bool|array
{
    if ($room === '*' || !mayUse($connection, $room)) return false;
    if (!is_string($payload['text'] ?? null)) return ['deny' => 'A message has a text.'];
    $text = iconv_substr($payload['text'], 0, 500);
    return ['payload' => ['text' => $text, 'by' => $connection['info']['name']]];
}

$body = file_get_contents('php://input');
if (!isSigned($body)) {
    http_response_code(401);
    exit;
}
$asked = json_decode($body, true, 512, JSON_THROW_ON_ERROR);
$answer = match ($asked['hook']) {
    'onConnect' => onConnect($asked['request']),
    'onJoin' => mayUse($asked['connection'], $asked['room']),
    'onPublish' => onPublish($asked['connection'], $asked['room'], $asked['payload']),
    'onDisconnect' => true,
};
if ($asked['hook'] === 'onJoin') header('Fanfare-Cache-Seconds: 10');
header('Content-Type: application/json');
echo json_encode($answer, JSON_THROW_ON_ERROR);
